"""`--split-edges`: hold some edges of a graph back, to validate and test link prediction on.

The split of an edge is a function of the seed and of the original ids of its ends, in whichever order: both directions
of an edge stay in one split, and every machine and partition splits alike. What is left of the topology is the training
split, so that message passing never sees an edge that is held back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from data_prep.mapped_arrays import mapped, temporary_file
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.edge_splits import EdgeSplits, both_ways
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.row_blocks import row_groups
from leapmpi.errors import ConfigError, DataError
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_BLOCK = 64 * 2**20
_STREAM = 0x65646765  # keeps edges apart from other uses of the seed


def parse_shares(text: str) -> tuple[float, float, float]:
    """'0.8,0.1,0.1' as shares of training, validation and test edges. Raises ConfigError."""
    try:
        train, val, test = (float(each) for each in text.split(","))
    except ValueError:
        train = val = test = -1.0
    if min(train, val, test) < 0 or not 0 < train <= 1 or abs(train + val + test - 1) > 1e-9:
        raise ConfigError(
            f"--split-edges {text!r}: give the shares of training, validation and test edges, which add up to 1, such "
            "as 0.8,0.1,0.1"
        )
    return train, val, test


@compiled
def pair_hash(base, u, v):
    """uint64: a hash of the unordered pair of original ids `u` and `v`."""
    return fold(fold(base, min(u, v)), max(u, v))


@compiled
def _codes(indptr, indices, original, first, base, train, val, both_ways, out, kept):
    """Write the split of each edge of the rows from `first` on to `out`; NO_SPLIT for the way not listed of a pair.

    Counts the edges of each row that stay in the topology in `kept`.
    """
    start = indptr[0]
    for i in range(len(indptr) - 1):
        v = original[first + i]
        for e in range(indptr[i] - start, indptr[i + 1] - start):
            u = original[indices[e]]
            hashed = pair_hash(base, u, v)
            unit = np.float64(hashed >> np.uint64(11)) * 2.0**-53
            if unit < train:
                out[e] = names.TRAIN
                kept[i] += 1
                continue
            # Of a pair with edges both ways one is listed, by a bit of another hash.
            listed = not both_ways or (fold(hashed, 1) & np.uint64(1) == np.uint64(u < v))
            out[e] = names.NO_SPLIT if not listed else names.VAL if unit < train + val else names.TEST


def split_edges(
    graph: Graph, shares: tuple[float, float, float], seed: int, progress: Callable[[int], object] | None = None
) -> Graph:
    """`graph` with the topology of its training edges alone, and the others as its `edge_splits`.

    Each edge goes by a hash to training, validation or test with chances `shares`. Of a graph whose edges go both ways
    (attribute `directed` is false) each pair is listed once. Training edges keep what they carry. The new topology lies
    in temporary files; a block of the graph is read at a time, so that a mapped one may be larger than memory.

    Raises DataError where edges are held back already, or no training edge is left.
    """
    if graph.edge_splits is not None:
        raise DataError("the edges of this graph are split already; leave out --split-edges")
    base = np.uint64(fold(np.uint64(fold(np.uint64(0), np.uint64(seed))), _STREAM))
    original, symmetric = np.asarray(graph.original_id), both_ways(graph.attributes)
    kept = np.zeros(graph.vertices, np.int64)

    # Block by block: what stays goes to a file, what is held back too.
    with ExitStack() as stack:
        topology = temporary_file()
        carried = {name: temporary_file() for name in graph.edge_data.arrays()}
        files = {code: temporary_file() for code in (names.VAL, names.TEST)}
        sizes = dict.fromkeys(files, 0)
        stack.callback(lambda: [each.close() for each in (topology, *carried.values(), *files.values())])
        for start, stop in row_groups(graph.indptr, 24, 24 + graph.edge_data.row_bytes, _BLOCK):
            indptr = np.array(graph.indptr[start : stop + 1])
            indices = np.array(graph.indices[indptr[0] : indptr[-1]])
            codes = np.empty(len(indices), np.int8)
            _codes(indptr, indices, original, start, base, *shares[:2], symmetric, codes, kept[start:stop])
            indices[codes == names.TRAIN].tofile(topology)
            for name, file in carried.items():
                graph.edge_data.arrays()[name][indptr[0] : indptr[-1]][codes == names.TRAIN].tofile(file)
            destination = np.repeat(np.arange(start, stop), np.diff(indptr))
            for code, file in files.items():
                chosen = codes == code
                sizes[code] += int(chosen.sum())
                np.stack([indices[chosen].astype(np.int64), destination[chosen]], axis=1).tofile(file)
            if progress:
                progress(stop)

        # The graph of what is left.
        new_indptr = np.zeros(graph.vertices + 1, np.int64)
        np.cumsum(kept, out=new_indptr[1:])
        if not new_indptr[-1]:
            raise DataError("--split-edges leaves no training edge; give training a larger share")
        held = [mapped(files[code], np.int64, 2 * sizes[code]).reshape(-1, 2) for code in files]
        edges = int(new_indptr[-1])
        indices = mapped(topology, graph.indices.dtype, edges)
        data = {
            name.removeprefix("edge_"): mapped(
                carried[name], array.dtype, edges * int(np.prod(array.shape[1:]))
            ).reshape(edges, *array.shape[1:])
            for name, array in graph.edge_data.arrays().items()
        }
    origin = f"--split-edges {','.join(f'{share:g}' for share in shares)}, seed {seed}"
    return replace(
        graph,
        indptr=new_indptr,
        indices=indices,
        uuid=None,
        edge_data=EdgeData(**data),
        edge_splits=EdgeSplits(*held),
        attributes={**graph.attributes, "edge_split_origin": origin},
    )
