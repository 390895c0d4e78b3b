"""The process in which METIS runs:
python metis_process.py FILE-DESCRIPTOR VERTICES EDGES CONSTRAINTS WEIGHTED PARTS TOLERANCE SEED FIRST LAST.

The file holds int64 arrays one after the other: indptr, neighbours, weights (vertices x constraints), with WEIGHTED 1
the weights of the edges, and a row of parts per try. The results of tries FIRST to LAST (exclusive) go into these rows.
Even tries bisect recursively, odd ones make all parts at once; try t has seed SEED + t. pymetis offers one weight per
vertex only; METIS itself, as loaded by pymetis, takes several (Karypis, Kumar: "Multilevel algorithms for
multi-constraint graph partitioning", SC 1998), so it is called directly where its functions can be found. This file
imports nothing of the project.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any, NamedTuple

import numpy as np

_OK = 1
_ERRORS = {-2: "wrong input", -3: "Memory", -4: "other error"}
_OPTIONS = 40


class MetisArrays(NamedTuple):
    """METIS's input and output in the shared file, all int64: compressed rows of an undirected graph, weights
    [n, constraints], edge_weights [edges] (or [0]: all 1), and the parts [tries, n] that METIS returns."""

    indptr: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray
    edge_weights: np.ndarray
    assignments: np.ndarray


def arrays_in(shared: np.ndarray, n: int, edges: int, constraints: int, weighted: bool) -> MetisArrays:
    """View the arrays in the file's content, int64."""
    bounds = np.cumsum([n + 1, edges, constraints * n, edges * weighted])
    indptr, neighbours, weights, edge_weights, out = np.split(shared, bounds)
    return MetisArrays(indptr, neighbours, weights.reshape(n, constraints), edge_weights, out.reshape(-1, n))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def allowed_imbalance(tolerance: float, parts: int, recursive: bool) -> float:
    """Return METIS's ubvec: bisections multiply their imbalances, so each gets its root of the tolerance."""
    bisections = max(1, (parts - 1).bit_length()) if recursive else 1
    return max(1.0001, tolerance ** (1 / bisections))


def many_constraints(
    library, index: type, arrays: MetisArrays, parts: int, tolerance: float, seed: int, recursive: bool
) -> np.ndarray:
    """Call METIS_PartGraphRecursive or METIS_PartGraphKway: parts [n] of integers of type `index`."""
    from pymetis import OptionKey

    # METIS's arguments, of its type of integers.
    dtype = np.dtype(index)
    indptr, neighbours, weights, edge_weights = (np.ascontiguousarray(each, dtype) for each in arrays[:4])
    options = np.zeros(_OPTIONS, dtype)
    library.METIS_SetDefaultOptions(_pointer(options))
    options[int(OptionKey.SEED)] = seed
    vertices, constraints = (ctypes.byref(index(count)) for count in weights.shape)
    allowed = np.full(weights.shape[1], allowed_imbalance(tolerance, parts, recursive), np.float32)

    # The call of the C function.
    out = np.full(len(weights), -1, dtype)
    call = library.METIS_PartGraphRecursive if recursive else library.METIS_PartGraphKway
    status = call(
        vertices, constraints, _pointer(indptr), _pointer(neighbours), _pointer(weights), None,
        _pointer(edge_weights) if len(edge_weights) else None, ctypes.byref(index(parts)), None, _pointer(allowed),
        _pointer(options), ctypes.byref(index(0)), _pointer(out),
    )  # fmt: skip
    if status != _OK:
        sys.exit(_ERRORS.get(status, f"status {status}"))
    return out


def one_constraint(arrays: MetisArrays, parts: int, seed: int, recursive: bool) -> np.ndarray:
    """Call pymetis with one weight, the constraints added up, each scaled to about the same total: parts [n]."""
    import pymetis

    weights, edge_weights = arrays.weights, arrays.edge_weights if len(arrays.edge_weights) else None
    share = (weights * np.maximum(1, weights[:, 0].sum() // np.maximum(1, weights.sum(axis=0)))).sum(axis=1)
    graph: dict[str, Any] = {"xadj": arrays.indptr, "adjncy": arrays.neighbours}
    if hasattr(pymetis, "CSRAdjacency"):
        graph = {"adjacency": pymetis.CSRAdjacency(arrays.indptr, arrays.neighbours)}
    graph |= {"vweights": share, "eweights": edge_weights}
    _, found = pymetis.part_graph(parts, **graph, recursive=recursive, options=pymetis.Options(seed=seed))
    return np.asarray(found)


def main() -> None:
    """Read the arrays, run METIS, write the parts."""
    descriptor, n, edges, constraints, weighted, parts = map(int, sys.argv[1:7])
    tolerance, (seed, first, last) = float(sys.argv[7]), map(int, sys.argv[8:11])
    arrays = arrays_in(np.frombuffer(mmap.mmap(descriptor, 0), np.int64), n, edges, constraints, bool(weighted))

    # METIS's own functions where pymetis exports them.
    from pymetis import _internal

    library = ctypes.CDLL(_internal.__file__)
    direct = hasattr(library, "METIS_PartGraphRecursive") and hasattr(_internal, "_idx_type_width")
    index = ctypes.c_int64 if direct and _internal._idx_type_width() == 64 else ctypes.c_int32
    if max(edges, n) > np.iinfo(np.dtype(index)).max:
        sys.exit("this METIS has 32-bit indices, too small for the graph")

    for number in range(first, last):
        seed_of_try = (seed + number) % (2**31 - 1)
        recursive = number % 2 == 0
        if direct:
            result = many_constraints(library, index, arrays, parts, tolerance, seed_of_try, recursive)
        else:
            result = one_constraint(arrays, parts, seed_of_try, recursive)
        arrays.assignments[number] = result


if __name__ == "__main__":
    main()
