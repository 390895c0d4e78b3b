"""`--split-edges`: hold some edges of a graph back, to validate and test on; `--split-edge-labels`: their labels alone.

The split of an edge is a function of the seed and of the original ids of its ends, in whichever order, or of its time
(split_times.py): both directions of an edge stay in one split, and every machine and partition splits alike. What is
left of the topology, and of what edges carry, is the training split, so that message passing never sees an edge that is
held back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from data_prep.assembly.edge_splits.split_times import TimeSplit, time_split
from data_prep.mapped_arrays import mapped, temporary_file
from leapmpi.dataset.edge_splits import EdgeSplits, both_ways
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.row_blocks import row_groups
from leapmpi.errors import ConfigError, DataError
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_BLOCK = 64 * 2**20
_LISTED = (names.EDGE_LABELS, names.EDGE_TIME)
"""Data of edges that held-back ones keep."""

_STREAM = 0x65646765  # keeps edges apart from other uses of the seed


def parse_shares(text: str, flag: str = "--split-edges") -> tuple[float, float, float]:
    """Parse '0.8,0.1,0.1' as shares of training, validation and test edges. Raises ConfigError, naming the `flag`."""
    try:
        train, val, test = (float(each) for each in text.split(","))
    except ValueError:
        train = val = test = -1.0
    if min(train, val, test) < 0 or not 0 < train <= 1 or abs(train + val + test - 1) > 1e-9:
        raise ConfigError(
            f"{flag} {text!r}: give the shares of training, validation and test edges, which add up to 1, such "
            "as 0.8,0.1,0.1"
        )
    return train, val, test


@dataclass(frozen=True)
class SplitRequest:
    """Rule for splitting edges: shares of training, validation and test; what is held back; by time or hash."""

    shares: tuple[float, float, float]
    held: str
    by: str | None


def requested_split(edges: str | None, labels: str | None, by: str | None) -> SplitRequest | None:
    """Read the split that --split-edges (shares) or --split-edge-labels requests, None without.

    Raises ConfigError, also for both, or for --split-edges-by alone.
    """
    if edges is not None and labels is not None:
        raise ConfigError("--split-edges and --split-edge-labels exclude each other; give one")
    if edges is None and labels is None:
        if by is not None:
            raise ConfigError(f"--split-edges-by {by}: nothing is split without --split-edges, such as 0.8,0.1,0.1")
        return None
    if labels is not None:
        return SplitRequest(parse_shares(labels, "--split-edge-labels"), names.HELD_LABELS, by)
    return SplitRequest(parse_shares(str(edges)), names.HELD_EDGES, by)


@compiled
def pair_hash(base, u, v):
    """Return a hash uint64 of the unordered pair of original ids `u` and `v`."""
    return fold(fold(base, min(u, v)), max(u, v))


@compiled
def is_listed(hashed, u, v, both_ways):
    """Return whether the edge u -> v is listed if held back: of a pair with edges both ways one is, by a bit."""
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
    """Return codes as `_hash_codes` does, by the `times` of the edges."""
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
    """Return whether `graph` splits its edges by time: as `by` (time, hash) says; without it, if edges have times.

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
    held: str = names.HELD_EDGES,
) -> Graph:
    """Keep the training edges of `graph` as its topology, and the others as its `edge_splits`.

    held: names.HELD_LABELS leaves the edges in the topology, and holds their labels back; unlabelled ones stay.

    `by` time, the oldest edges train and the newest test; by hash, each edge goes to training, validation or test with
    chances `shares`; None is by time where edges have one. Of a graph whose edges go both ways (attribute `directed` is
    false) each pair is listed once. The new topology and its edge data are temporary files. The graph is read in
    blocks, so that a mapped one may be larger than memory.

    Raises DataError where edges are held back already, no training edge is left, or all times are too alike to split;
    ConfigError to split by time edges without.
    """
    check_unsplit(graph, held)
    by_time = time_split(graph, shares) if splits_by_time(graph, by) else None
    base = np.uint64(fold(np.uint64(fold(np.uint64(0), np.uint64(seed))), _STREAM))
    original, symmetric = np.asarray(graph.original_id), both_ways(graph.attributes)

    def coded(start: int, first: int, indptr: np.ndarray, indices: np.ndarray, codes: np.ndarray) -> None:
        # Codes follow from original ids or times, so that every partition splits alike.
        if by_time:
            bounds, times = (by_time.last_train, by_time.last_val), by_time.times[first : first + len(indices)]
            _time_codes(indptr, indices, original, start, base, times, *bounds, symmetric, codes)
        else:
            _hash_codes(indptr, indices, original, start, base, *shares[:2], symmetric, codes)

    return hold_back(graph, coded, held, _origin(shares, seed, by_time, held), progress)


def check_unsplit(graph: Graph, held: str) -> None:
    """Raise DataError where edges of `graph` are held back already, or have no labels that could be."""
    if graph.edge_splits is not None:
        raise DataError("the edges of this graph are split already; leave out --split-edges and --split-edge-labels")
    if held == names.HELD_LABELS and graph.edge_data.labels is None:
        raise DataError("--split-edge-labels: edges of this graph have no labels; import them by --edge-labels")


Coded = Callable[[int, int, np.ndarray, np.ndarray, np.ndarray], None]
"""Writes the codes of the edges of some rows, int8: of arguments first row, first edge, indptr, indices, codes."""


def hold_back(
    graph: Graph, coded: Coded, held: str, origin: str, progress: Callable[[int], object] | None = None
) -> Graph:
    """Move the edges that `coded` sends to validation and test to the `edge_splits` of `graph`.

    A code is that of a split, or NO_SPLIT for the way that is not listed of an edge held back. What is left out of the
    topology, or of its labels, is as `held` says. Raises DataError where no training edge is left.
    """
    keeps, trained = held == names.HELD_LABELS, 0
    arrays, indptr_left = graph.edge_data.arrays(), np.zeros(graph.vertices + 1, np.int64)
    with ExitStack() as stack:
        # Files for what stays, and by split for what is held back.
        topology = _GrowingArray(stack, graph.indices.dtype)
        carried = {name: _GrowingArray(stack, array.dtype, array.shape[1:]) for name, array in arrays.items()}
        pairs = {code: _GrowingArray(stack, np.dtype(np.int64), (2,)) for code in (names.VAL, names.TEST)}
        kept = [name for name in _LISTED if name in arrays]
        listed = {(name, code): _GrowingArray(stack, arrays[name].dtype) for name in kept for code in pairs}
        for start, stop in row_groups(graph.indptr, 24, 32 + graph.edge_data.row_bytes, _BLOCK):
            indptr = np.array(graph.indptr[start : stop + 1])
            edges = slice(int(indptr[0]), int(indptr[-1]))
            indices, of_edges = np.array(graph.indices[edges]), {k: np.array(each[edges]) for k, each in arrays.items()}
            codes = np.empty(len(indices), np.int8)
            coded(start, edges.start, indptr, indices, codes)
            trains, destination = codes == names.TRAIN, np.repeat(np.arange(start, stop), np.diff(indptr))
            found, all_edges = of_edges.get(names.EDGE_LABELS), np.ones(len(codes), bool)
            known = all_edges if found is None else found != names.UNLABELLED
            trained += int((trains & known).sum())

            # What is held back.
            for code, pairs_of_code in pairs.items():
                chosen = (codes == code) & known if keeps else codes == code
                pairs_of_code.append(np.stack([indices[chosen].astype(np.int64), destination[chosen]], axis=1))
                for name in kept:
                    listed[name, code].append(of_edges[name][chosen])

            # What stays.
            stays = all_edges if keeps else trains
            if keeps and found is not None:
                of_edges[names.EDGE_LABELS] = np.where(trains, found, np.int32(names.UNLABELLED))
            indptr_left[start + 1 : stop + 1] = np.bincount(destination[stays] - start, minlength=stop - start)
            topology.append(indices[stays])
            for name, array in of_edges.items():
                carried[name].append(array[stays])
            if progress:
                progress(stop)
        if not trained:
            raise DataError(f"no training edge{' with a label' * keeps} is left; give training a larger share")
        fields = {
            f"{names.SPLIT_NAMES[code]}_{name.removeprefix('edge_')}": each.mapped()
            for (name, code), each in listed.items()
        }
        return replace(
            graph,
            indptr=np.cumsum(indptr_left),
            indices=topology.mapped(),
            uuid=None,
            edge_data=graph.edge_data.with_arrays({name: each.mapped() for name, each in carried.items()}),
            edge_splits=EdgeSplits(*(each.mapped() for each in pairs.values()), **fields, held=held),
            attributes={**graph.attributes, "edge_split_origin": origin},
        )


class _GrowingArray:
    """An array of rows of `shape` in a temporary file, closed with `stack`; what was mapped stays."""

    def __init__(self, stack: ExitStack, dtype: np.dtype, shape: tuple[int, ...] = ()) -> None:
        self._file, self._dtype, self._shape, self._rows = temporary_file(), dtype, shape, 0
        stack.callback(self._file.close)

    def append(self, rows: np.ndarray) -> None:
        """Append `rows`, of the array's dtype."""
        rows.tofile(self._file)
        self._rows += len(rows)

    def mapped(self) -> np.ndarray:
        """Return all rows, mapped."""
        return mapped(self._file, self._dtype, self._rows * math.prod(self._shape)).reshape(self._rows, *self._shape)


def _origin(shares: tuple[float, float, float], seed: int, by_time: TimeSplit | None, held: str) -> str:
    """Describe how the edges were split, for readers of the file."""
    flag = "--split-edge-labels" if held == names.HELD_LABELS else "--split-edges"
    text = f"{flag} {','.join(f'{share:g}' for share in shares)}"
    if by_time is None:
        return f"{text}, seed {seed}"
    return f"{text}, by time: training up to {by_time.last_train}, validation up to {by_time.last_val}"
