"""`--split-edges`: hold some edges of a graph back, to validate and test link prediction on.

The split of an edge is a function of the seed and of the original ids of its ends, in whichever order, or of its time
(split_times.py): both directions of an edge stay in one split, and every machine and partition splits alike. What is
left of the topology, and of what edges carry, is the training split, so that message passing never sees an edge that is
held back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from data_prep.assembly.split_times import TimeSplit, time_split
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


def asked_shares(text: str | None, by: str | None) -> tuple[float, float, float] | None:
    """The shares that --split-edges names, None without. Raises ConfigError, also for --split-edges-by alone."""
    if text is None and by is not None:
        raise ConfigError(f"--split-edges-by {by}: nothing is split without --split-edges, such as 0.8,0.1,0.1")
    return None if text is None else parse_shares(text)


@compiled
def pair_hash(base, u, v):
    """uint64: a hash of the unordered pair of original ids `u` and `v`."""
    return fold(fold(base, min(u, v)), max(u, v))


@compiled
def is_listed(hashed, u, v, both_ways):
    """Whether the edge u -> v is listed where it is held back: of a pair with edges both ways one is, by a bit."""
    return not both_ways or (fold(hashed, 1) & np.uint64(1) == np.uint64(u < v))


@compiled
def _hash_codes(indptr, indices, original, first, base, train, val, both_ways, out):
    """Write the split of each edge of the rows from `first` on to `out`; NO_SPLIT for the way not listed of a pair."""
    start = indptr[0]
    for i in range(len(indptr) - 1):
        v = original[first + i]
        for e in range(indptr[i] - start, indptr[i + 1] - start):
            u = original[indices[e]]
            hashed = pair_hash(base, u, v)
            unit = np.float64(hashed >> np.uint64(11)) * 2.0**-53
            if unit < train:
                out[e] = names.TRAIN
            elif not is_listed(hashed, u, v, both_ways):
                out[e] = names.NO_SPLIT
            else:
                out[e] = names.VAL if unit < train + val else names.TEST


@compiled
def _time_codes(indptr, indices, original, first, base, times, last_train, last_val, both_ways, out):
    """As `_hash_codes`, by the `times` of the edges."""
    start = indptr[0]
    for i in range(len(indptr) - 1):
        v = original[first + i]
        for e in range(indptr[i] - start, indptr[i + 1] - start):
            u = original[indices[e]]
            if times[e] <= last_train:
                out[e] = names.TRAIN
            elif not is_listed(pair_hash(base, u, v), u, v, both_ways):
                out[e] = names.NO_SPLIT
            else:
                out[e] = names.VAL if times[e] <= last_val else names.TEST


def splits_by_time(graph: Graph, by: str | None) -> bool:
    """Whether the edges of `graph` are split by time: as `by` says (time, hash), None by time where they have one.

    Raises ConfigError for time where edges have none.
    """
    if by == "time" and graph.edge_data.time is None:
        raise ConfigError(
            "--split-edges-by time: the edges of this graph have no times; import them (edge_time, or a column by "
            "--edge-columns), or leave the flag out to split by hash"
        )
    return graph.edge_data.time is not None and by != "hash"


def split_edges(
    graph: Graph,
    shares: tuple[float, float, float],
    seed: int,
    progress: Callable[[int], object] | None = None,
    by: str | None = None,
) -> Graph:
    """`graph` with the topology of its training edges alone, and the others as its `edge_splits`.

    `by` time, the oldest edges train and the newest test; by hash, each edge goes to training, validation or test with
    chances `shares`; None is by time where edges have one. Of a graph whose edges go both ways (attribute `directed` is
    false) each pair is listed once. The new topology, and what its edges carry, lie in temporary files; a block of the
    graph is read at a time, so that a mapped one may be larger than memory.

    Raises DataError where edges are held back already, no training edge is left, or all times are too alike to split;
    ConfigError to split by time edges without.
    """
    if graph.edge_splits is not None:
        raise DataError("the edges of this graph are split already; leave out --split-edges")
    by_time = time_split(graph, shares) if splits_by_time(graph, by) else None
    base = np.uint64(fold(np.uint64(fold(np.uint64(0), np.uint64(seed))), _STREAM))
    original, symmetric = np.asarray(graph.original_id), both_ways(graph.attributes)
    kept = np.zeros(graph.vertices, np.int64)

    # Block by block: what stays goes to a file, what is held back too.
    with ExitStack() as stack:
        topology = temporary_file()
        files = {code: temporary_file() for code in (names.VAL, names.TEST)}
        carried = {name: temporary_file() for name in graph.edge_data.arrays()}
        sizes = dict.fromkeys(files, 0)
        stack.callback(lambda: [each.close() for each in (topology, *files.values(), *carried.values())])
        for start, stop in row_groups(graph.indptr, 24, 32 + graph.edge_data.row_bytes, _BLOCK):
            indptr = np.array(graph.indptr[start : stop + 1])
            edges = slice(int(indptr[0]), int(indptr[-1]))
            indices = np.array(graph.indices[edges])
            codes = np.empty(len(indices), np.int8)
            if by_time:
                bounds = by_time.last_train, by_time.last_val
                _time_codes(indptr, indices, original, start, base, by_time.times[edges], *bounds, symmetric, codes)
            else:
                _hash_codes(indptr, indices, original, start, base, *shares[:2], symmetric, codes)
            trains, destination = codes == names.TRAIN, np.repeat(np.arange(start, stop), np.diff(indptr))
            kept[start:stop] = np.bincount(destination[trains] - start, minlength=stop - start)
            indices[trains].tofile(topology)
            for name, array in graph.edge_data.arrays().items():
                np.asarray(array[edges])[trains].tofile(carried[name])
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
        indices = mapped(topology, graph.indices.dtype, int(new_indptr[-1]))
        edge_data = _of_files(graph.edge_data, carried, int(new_indptr[-1]))
    return replace(
        graph,
        indptr=new_indptr,
        indices=indices,
        uuid=None,
        edge_data=edge_data,
        edge_splits=EdgeSplits(*held),
        attributes={**graph.attributes, "edge_split_origin": _origin(shares, seed, by_time)},
    )


def _of_files(data: EdgeData, files: dict[str, BinaryIO], edges: int) -> EdgeData:
    """What `edges` edges carry, mapped, from files of rows like those of `data`."""
    found = {}
    for name, array in data.arrays().items():
        rows = mapped(files[name], array.dtype, edges * (array.shape[1] if array.ndim == 2 else 1))
        found[name.removeprefix("edge_")] = rows.reshape(edges, *array.shape[1:])
    return EdgeData(**found)


def _origin(shares: tuple[float, float, float], seed: int, by_time: TimeSplit | None) -> str:
    """How the edges were split, for those who read the file."""
    text = f"--split-edges {','.join(f'{share:g}' for share in shares)}"
    if by_time is None:
        return f"{text}, seed {seed}"
    return f"{text}, by time: training up to {by_time.last_train}, validation up to {by_time.last_val}"
