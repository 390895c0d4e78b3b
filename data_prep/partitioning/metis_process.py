"""The process in which METIS runs:
python metis_process.py FILE-DESCRIPTOR VERTICES EDGES CONSTRAINTS WEIGHTED PARTS TOLERANCE SEED FIRST LAST.

The file holds int64 arrays one after the other: indptr, neighbours, weights (vertices x constraints), with WEIGHTED 1
the weights of the edges, and a row of parts per try, into which the results of tries FIRST to LAST (exclusive) go.
Even tries bisect recursively, odd ones make all parts at once; try t has seed SEED + t. pymetis offers one weight
per vertex only; METIS itself, as loaded by pymetis, takes several (Karypis, Kumar: "Multilevel algorithms for
multi-constraint graph partitioning", SC 1998), so it is called directly where its functions can be found. This file
imports nothing of the project.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import dataclass

import numpy as np

_OK = 1
_ERRORS = {-2: "wrong input", -3: "Memory", -4: "other error"}
_OPTIONS = 40


@dataclass(frozen=True)
class MetisProblem:
    """Compressed rows int64 of an undirected graph, weights int64[n, constraints], edge weights int64[edges] or None,
    the number of parts, and how many times the mean the largest part may have."""

    indptr: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray
    edge_weights: np.ndarray | None
    parts: int
    tolerance: float


def _pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def allowed_imbalance(tolerance: float, parts: int, recursive: bool) -> float:
    """METIS's ubvec: bisections multiply their imbalances, so each gets its root of the tolerance."""
    bisections = max(1, (parts - 1).bit_length()) if recursive else 1
    return max(1.0001, tolerance ** (1 / bisections))


def many_constraints(library, index: type, problem: MetisProblem, seed: int, recursive: bool) -> np.ndarray:
    """METIS_PartGraphRecursive or METIS_PartGraphKway: parts [n] of integers of type `index`."""
    from pymetis import OptionKey

    # METIS's arguments, of its type of integers.
    dtype = np.dtype(index)
    arrays = (problem.indptr, problem.neighbours, problem.weights, problem.edge_weights)
    arrays = [None if a is None else np.ascontiguousarray(a, dtype) for a in arrays]
    options = np.zeros(_OPTIONS, dtype)
    library.METIS_SetDefaultOptions(_pointer(options))
    options[int(OptionKey.SEED)] = seed
    vertices, constraints = (ctypes.byref(index(count)) for count in problem.weights.shape)
    imbalance = allowed_imbalance(problem.tolerance, problem.parts, recursive)
    allowed = np.full(problem.weights.shape[1], imbalance, np.float32)

    # The call of the C function.
    out = np.full(len(problem.weights), -1, dtype)
    call = library.METIS_PartGraphRecursive if recursive else library.METIS_PartGraphKway
    status = call(
        vertices, constraints, *map(_pointer, arrays[:3]), None, _pointer(arrays[3]),
        ctypes.byref(index(problem.parts)), None, _pointer(allowed), _pointer(options), ctypes.byref(index(0)),
        _pointer(out),
    )  # fmt: skip
    if status != _OK:
        sys.exit(_ERRORS.get(status, f"status {status}"))
    return out


def one_constraint(problem: MetisProblem, seed: int, recursive: bool) -> np.ndarray:
    """pymetis with one weight: the constraints added up, each scaled to about the same total: parts [n]."""
    import pymetis

    weights = problem.weights
    share = (weights * np.maximum(1, weights[:, 0].sum() // np.maximum(1, weights.sum(axis=0)))).sum(axis=1)
    if hasattr(pymetis, "CSRAdjacency"):
        graph = {"adjacency": pymetis.CSRAdjacency(problem.indptr, problem.neighbours)}
    else:
        graph = {"xadj": problem.indptr, "adjncy": problem.neighbours}
    options = pymetis.Options(seed=seed)
    result = pymetis.part_graph(
        problem.parts, **graph, vweights=share, eweights=problem.edge_weights, recursive=recursive, options=options
    )
    return np.asarray(result[1])


def main() -> None:
    """Read the arrays, run METIS, write the parts."""
    # The arrays of the shared file.
    descriptor, n, edges, constraints, weighted, parts = map(int, sys.argv[1:7])
    tolerance, (seed, first, last) = float(sys.argv[7]), map(int, sys.argv[8:11])
    shared = np.frombuffer(mmap.mmap(descriptor, 0), np.int64)
    cuts = np.cumsum([n + 1, edges, constraints * n, edges if weighted else 0])
    indptr, neighbours, weights, edge_weights, out = np.split(shared, cuts)
    edge_weights = edge_weights if weighted else None
    problem = MetisProblem(indptr, neighbours, weights.reshape(n, constraints), edge_weights, parts, tolerance)

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
            result = many_constraints(library, index, problem, seed_of_try, recursive)
        else:
            result = one_constraint(problem, seed_of_try, recursive)
        out.reshape(-1, n)[number] = result


if __name__ == "__main__":
    main()
