"""The process in which METIS runs: python metis_process.py FILE-DESCRIPTOR VERTICES EDGES CONSTRAINTS PARTS SEED.

The file holds int64 arrays one after the other: indptr, neighbours, weights (vertices x constraints), and parts,
into which the result goes. pymetis offers one weight per vertex only; METIS itself, as loaded by pymetis, takes
several (Karypis, Kumar: "Multilevel algorithms for multi-constraint graph partitioning", SC 1998), so it is called
directly where its functions can be found. This file imports nothing of the project.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

_OK = 1
_ERRORS = {-2: "wrong input", -3: "Memory", -4: "other error"}
_OPTIONS = 40


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def many_constraints(library, index: type, indptr, neighbours, weights, parts: int, seed: int) -> np.ndarray:
    """METIS_PartGraphRecursive with weights [n, constraints]: parts [n] of integers of type `index`."""
    from pymetis import OptionKey

    dtype = np.dtype(index)
    indptr, neighbours, weights = (np.ascontiguousarray(a, dtype) for a in (indptr, neighbours, weights))
    options = np.zeros(_OPTIONS, dtype)
    library.METIS_SetDefaultOptions(_pointer(options))
    options[int(OptionKey.SEED)] = seed
    vertices, constraints = (ctypes.byref(index(count)) for count in weights.shape)
    out = np.full(len(weights), -1, dtype)
    status = library.METIS_PartGraphRecursive(
        vertices, constraints, _pointer(indptr), _pointer(neighbours), _pointer(weights), None, None,
        ctypes.byref(index(parts)), None, None, _pointer(options), ctypes.byref(index(0)), _pointer(out),
    )  # fmt: skip
    if status != _OK:
        sys.exit(_ERRORS.get(status, f"status {status}"))
    return out


def one_constraint(indptr, neighbours, weights, parts: int, seed: int) -> np.ndarray:
    """pymetis with one weight: the constraints added up, each scaled to about the same total: parts [n]."""
    import pymetis

    share = (weights * np.maximum(1, len(weights) // weights.sum(axis=0))).sum(axis=1)
    if hasattr(pymetis, "CSRAdjacency"):
        graph = {"adjacency": pymetis.CSRAdjacency(indptr, neighbours)}
    else:
        graph = {"xadj": indptr, "adjncy": neighbours}
    result = pymetis.part_graph(parts, **graph, vweights=share, recursive=True, options=pymetis.Options(seed=seed))
    return np.asarray(result[1])


def main() -> None:
    """Read the arrays, run METIS, write the parts."""
    descriptor, n, edges, constraints, parts, seed = map(int, sys.argv[1:])
    shared = np.frombuffer(mmap.mmap(descriptor, 0), np.int64)
    indptr, neighbours, weights, out = np.split(shared, np.cumsum([n + 1, edges, constraints * n]))
    weights = weights.reshape(n, constraints)
    from pymetis import _internal

    library = ctypes.CDLL(_internal.__file__)
    seed %= 2**31 - 1
    if hasattr(library, "METIS_PartGraphRecursive") and hasattr(_internal, "_idx_type_width"):
        index = ctypes.c_int64 if _internal._idx_type_width() == 64 else ctypes.c_int32
        if max(edges, n) > np.iinfo(np.dtype(index)).max:
            sys.exit("this METIS has 32-bit indices, too small for the graph")
        out[:] = many_constraints(library, index, indptr, neighbours, weights, parts, seed)
    else:
        out[:] = one_constraint(indptr, neighbours, weights, parts, seed)


if __name__ == "__main__":
    main()
