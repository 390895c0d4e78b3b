"""Sampler `temporal`: fan-out in-neighbours by edges not later than the roots; uniform ones, or the latest.

Mini-batches hold roots of neighbouring times. The bound of an iteration is the time of its earliest root, at all hops:
no draw is later than any root of the batch. The bound is a function of the batch alone, so draws of a vertex are the
same on every rank. (TGL uses a bound for each root; Zhou et al., "TGL", VLDB 2022, section 3.2.)

A root that is an edge has the time of the edge. A root that is a vertex has its own, or one set by `root-time`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError, counted
from leapmpi.sampling.ages import span_of
from leapmpi.sampling.block import Block
from leapmpi.sampling.draws_by_time import ascending_lists, count_seen, latest, uniform
from leapmpi.sampling.edge_lookup import numbers_of_edges
from leapmpi.sampling.epoch_order import batches, by_time, shuffled
from leapmpi.sampling.hop_sampler import HopSampler, capped_indptr
from leapmpi.sampling.root_bounds import BoundedFrontier, intervals
from leapmpi.sampling.sampler import ITERATION_GLOBAL, LISTS, Drawn, Setup
from leapmpi.system.counter_rng import ORDER, DrawKey, fold, fold_all, key_hash
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.sampling.training_edges import TrainingEdges

LATEST_EDGE, AUTO = "latest-edge", "auto"
_NO_MARKS = np.empty(0, bool)
BY_ROOT = "root"


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for temporal."""

    draw: str = setting("uniform", "choice among the edges that are not too late", choices=("uniform", "latest"))
    window: float = setting(0.0, "largest age of an edge relative to the bound; 0: any age", least=0)
    same_time: str = setting(
        "auto",
        "draw edges of the bound's own time? auto: not if roots are edges",
        choices=("auto", "yes", "no"),
    )
    root_time: str = setting(
        AUTO,
        "time of a vertex: that of its latest in-edge, or an .npy file; auto: the stored vertex time, if any",
    )
    bound: str = setting(
        "batch",
        "bound of draws: the earliest root of the batch, or each root's own time (root)",
        choices=("batch", BY_ROOT),
    )
    order: str = setting("shuffled", "order of the batches of an epoch", choices=("shuffled", "time"))


@compiled
def _latest_in_edges(indptr, edge_time, times):
    """Write the largest time of each vertex's in-edges.

    Vertices without any, or without a list on this rank, keep their entry of `times`.
    """
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            times[v] = edge_time[e] if e == indptr[v] else max(times[v], edge_time[e])


class TimesOf:
    """Times of some vertices by id, in place of an array over all vertices."""

    def __init__(self, ids: np.ndarray, times: np.ndarray) -> None:
        """Take `times` (numbers[k]) of `ids` (int64[k], ascending)."""
        self._ids, self._times = ids, times
        self.dtype = times.dtype

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        return self._times[np.searchsorted(self._ids, ids)]


class SameTime:
    """One time for all vertices, if none is a root."""

    def __init__(self, time: np.ndarray) -> None:
        """Take time: numbers[1], or none."""
        self._time, self.dtype = time, time.dtype

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        return np.repeat(self._time, len(ids))


class Temporal(HopSampler):
    """Iteration-global sampler: the bound is that of the batch.

    Keeps 8 bytes per vertex and one per edge of the topology on every rank. If roots are edges, it keeps the times of
    the last registered edges, and `share_newest` is called. With a sharded topology `share_root_times`
    (leapmpi/sampling/sharded/root_times.py) gathers the times of the vertices of the splits: 16 bytes for each.
    """

    family = ITERATION_GLOBAL
    leaves_edges_out = True
    draws_from_copies = True

    def __init__(self, setup: Setup, options: Options) -> None:
        """Read the times. Raises ConfigError for an unsuitable file, ValueError for a topology without times."""
        super().__init__(setup)
        self.by_root = options.bound == BY_ROOT
        if setup.topology.edge_time is None:
            raise ValueError("the topology was loaded without the times of edges")
        self.options = options
        self._ascending = _marks(setup.topology)
        """Times of the edges of the whole topology, and the marks of its lists whose times ascend, bool[edges]."""
        self.root_time: np.ndarray | TimesOf | SameTime = _root_times(setup, options.root_time)
        self._setup = setup
        time = setup.topology.edge_time
        self.newest = time.max(keepdims=True) if len(time) else time
        """Latest time of an edge, numbers[1]; empty without edges. Over all ranks if the topology is sharded."""
        self._of_edges: dict[int, tuple[DrawKey, Any]] = {}
        """Last key with edges as roots, and the time of the earliest, by stream."""
        self.seen = self.interval(self.root_time[:1], strict=False)
        """First and last time of the edges visible to the roots of the current iteration."""
        self._bound_times: np.ndarray | None = None
        """Times of the bounds of the destinations that draw, where roots bound them one by one."""

    def cut(
        self, order: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        """Cut by time, roots of equal times in shuffled order; as shuffled where each root has its own bound."""
        if self.by_root:
            return batches(order, batch_size)
        return self._ordered(batches(by_time(order, self.root_time[order]), batch_size), seed, epoch, stream)

    def edge_batches(
        self, edges: TrainingEdges, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        cut = edges.batches(seed, epoch, batch_size, stream, self.topology.edge_time)
        return self._ordered(cut, seed, epoch, stream)

    def root_edges(self, key: DrawKey, edges: np.ndarray) -> None:
        time = self.topology.edge_time
        assert time is not None
        numbers = numbers_of_edges(self.topology, edges)
        self._of_edges[key.stream] = key, time[numbers].min() if len(edges) else time.dtype.type(0)

    def root_times(self, key: DrawKey, times: np.ndarray) -> None:
        self._of_edges[key.stream] = key, times.min()

    def for_scoring(
        self,
        fanouts: tuple[int, ...],
        splits: Mapping[int, np.ndarray],
        batch_size: int,
        relation_fanouts: np.ndarray | None = None,
    ) -> ScoringSampler:
        setup = replace(self._setup, fanouts=fanouts, relation_fanouts=relation_fanouts)
        found = ScoringSampler(setup, self.options, self.root_time, self.newest, splits, batch_size)
        found._ascending = self._ascending
        return found

    @cached_property
    def _bounded(self) -> BoundedFrontier:
        return BoundedFrontier(self.topology, span_of(self.root_time[self._setup.train]))

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Sample blocks; bounded by each root, a source has an entry for each bound."""
        if not self.by_root:
            return super().sample(key, roots, batch)
        roots = self.checked_roots(roots)

        def draw(hop: int, of_bound: np.ndarray, *destinations: np.ndarray) -> Drawn:
            return self._drawn_before(of_bound, key, hop, *destinations)

        return self._bounded.sample(roots, self.root_time[roots], len(self.fanouts), draw)

    def sample_unnumbered(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Sample; bounded by each root, blocks are numbered, as sources with other bounds are other rows."""
        return self.sample(key, roots, batch) if self.by_root else super().sample_unnumbered(key, roots, batch)

    def bounded_neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, bounds: np.ndarray) -> Drawn:
        destinations = vertices, self.topology.original_id[vertices], self.topology.degree(vertices)
        return self._drawn_before(bounds, key, hop, *destinations)

    def _drawn_before(self, times: np.ndarray, key: DrawKey, hop: int, *destinations: np.ndarray) -> Drawn:
        """Draw for `destinations`: vertices, original ids and in-degrees; times: those of their bounds, numbers[n]."""
        self._bound_times = times
        try:
            return self.drawn(key, hop, *destinations)
        finally:
            self._bound_times = None

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        known, bound = self._of_edges.get(key.stream, (None, None))
        if known == key:
            self.seen = self.interval(np.array([bound]), self.options.same_time != "yes")
        else:
            self.seen = self.interval(self.root_time[batch], self.options.same_time == "no")

    def interval(self, times: np.ndarray, strict: bool) -> tuple[Any, Any]:
        """Return the first and the last time of edges visible to roots of `times`, in the type of edge times.

        strict: whether edges of the earliest root's own time are too late. An empty interval ends before it begins.
        """
        kind = self.root_time.dtype
        window = self.options.window or math.inf
        if kind.kind == "f":
            bound = float(times.min(initial=math.inf))
            high = math.nextafter(bound, -math.inf) if strict else bound
            # Only roots without in-edges have an infinite bound.
            return kind.type(bound - window if math.isfinite(bound) else -math.inf), kind.type(high)

        # Python integers cannot overflow.
        limits = np.iinfo(np.int64)
        whole = int(times.min(initial=limits.max))
        last = whole - 1 if strict else whole
        low = limits.min if math.isinf(window) else max(limits.min, whole - math.floor(window))
        return (kind.type(low), kind.type(last)) if limits.min <= last else (kind.type(1), kind.type(0))

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        topology, counts = self.topology, np.empty(len(vertices), np.int64)
        hashed, *seen = self._of_destinations(np.uint64(fold(key_hash(key), hop)), len(vertices))
        # Marks of lists are those of the whole topology, whose edges some lists leave out.
        marked = topology.edge_time is self._ascending[0]
        interval = topology.edge_time, self._ascending[1] if marked else _NO_MARKS, *seen
        lists = vertices, degree, topology.indptr
        self.share_work(degree, lambda first, end: count_seen(first, end, *lists, *interval, counts))

        indptr = capped_indptr(counts, self.fanout(hop))
        out = np.empty(indptr[-1], np.int64)
        arrays = vertices, degree, topology.indptr, topology.indices, *interval, counts, indptr, out
        draw = hashed, original
        kernel = uniform if self.options.draw == "uniform" else latest
        self.share_work(degree, lambda first, end: kernel(first, end, *arrays, draw))
        return Drawn(indptr, out)

    def _of_destinations(self, hashed: np.uint64, lists: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the hashes, the first and the last visible times of the `lists` that draw, by the bound of each."""
        times = self._bound_times
        if times is None:
            low, high = (np.full(lists, each, self.root_time.dtype) for each in self.seen)
            return np.full(lists, hashed), low, high
        starts = self.list_starts
        times = times if starts is None else np.repeat(times, np.diff(starts))
        # The key holds the bound: its time, whatever the batch.
        words = times.view(np.int64) if times.dtype.kind == "f" else times
        return fold_all(hashed, words), *intervals(times, self.options.window, strict=self.options.same_time != "yes")

    def _ordered(self, cut: Sequence[np.ndarray], seed: int, epoch: int, stream: int) -> Sequence[np.ndarray]:
        return cut if self.options.order == "time" else shuffled(cut, seed, epoch, stream)


class ScoringSampler(Temporal):
    """Sampler for scored splits: each is cut into groups by time, bounded by the group's earliest root.

    The iteration of a key is the number of the group. Without groups all edges are visible: no split has times.
    """

    def __init__(
        self,
        setup: Setup,
        options: Options,
        root_time: np.ndarray | TimesOf | SameTime,
        newest: np.ndarray,
        splits: Mapping[int, np.ndarray],
        batch_size: int,
    ) -> None:
        HopSampler.__init__(self, setup)
        self._of_edges, self._setup = {}, setup
        self._ascending = (setup.topology.edge_time, _NO_MARKS)
        self.options, self.root_time = options, root_time
        self.by_root, self._bound_times = options.bound == BY_ROOT, None
        groups = {} if self.by_root else splits
        self.groups = {stream: batches(by_time(ids, root_time[ids]), batch_size) for stream, ids in groups.items()}
        self.newest = newest

    def scoring_groups(self, stream: int) -> Sequence[np.ndarray] | None:
        return self.groups.get(stream)

    def edge_groups(self, times: np.ndarray, batch_size: int) -> Sequence[np.ndarray] | None:
        if not len(times) or (not self.options.window and (self.newest < times.min()).all()):
            # Every edge of the topology is visible to all of them.
            return None
        return batches(by_time(np.arange(len(times)), times), batch_size)

    def begin(self, key: DrawKey, batch: np.ndarray) -> None:
        """Set the interval of visible times, by the edges or the group of `key`, else by the newest edge."""
        known, bound = self._of_edges.get(key.stream, (None, None))
        if known == key:
            self.seen = self.interval(np.array([bound]), self.options.same_time != "yes")
        elif groups := self.groups.get(key.stream):
            self.seen = self.interval(self.root_time[groups[key.iteration]], self.options.same_time == "no")
        else:
            self.seen = self.interval(self.newest, strict=False)


def _marks(topology: Topology) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the times of the edges of `topology`, and the marks of its lists whose times ascend, bool[edges]."""
    time = topology.edge_time
    return time, _NO_MARKS if time is None else ascending_lists(topology.indptr, time, topology.relation)


def _root_times(setup: Setup, given: str) -> np.ndarray:
    """Return the time of each vertex as a root, int64[n] or float64[n] like edge times. Raises ConfigError.

    A vertex without in-edges sees nothing anyway; with `latest-edge` it is later than all others.
    """
    topology = setup.topology
    time = topology.edge_time
    assert time is not None
    # A time of the vertex itself says best when it is a root.
    if given == AUTO and topology.vertex_time is not None:
        return topology.vertex_time.astype(time.dtype)
    if given in (LATEST_EDGE, AUTO):
        last = math.inf if time.dtype.kind == "f" else np.iinfo(np.int64).max
        times = np.full(topology.vertices, last, time.dtype)
        _latest_in_edges(topology.indptr, time, times)
        return times

    # Rows of the file are by original id.
    where = f"sampling.options: root-time={given}"
    try:
        found = np.load(given, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(
            f"{where}: cannot be read as an .npy file ({error}); name one, or write root-time={LATEST_EDGE}"
        ) from error
    shape = getattr(found, "shape", None)
    if shape != (topology.vertices,) or found.dtype.kind not in "iuf":
        raise ConfigError(
            f"{where}: needs one number for each of {counted(topology.vertices, 'vertex')}, in the order of their "
            "original "
            f"ids, and is {'an archive' if shape is None else f'{found.dtype} of shape {shape}'}"
        )
    with np.errstate(invalid="ignore"):
        times = found.astype(time.dtype)
    if len(bad := np.flatnonzero(~np.isfinite(found) | ((times != found) & (time.dtype.kind == "i")))):
        raise ConfigError(
            f"{where}: row {bad[0]} is {found[bad[0]]}, and times of the edges of this dataset are "
            f"{'whole numbers' if time.dtype.kind == 'i' else 'finite'}; give such times for all vertices"
        )
    # From rows by original id to the numbering of the dataset.
    ordered = np.empty_like(times)
    ordered[np.argsort(topology.original_id)] = times
    return ordered


MEMBER = SamplerMember(Temporal, Options, sharded=LISTS, reads_times=True, typed=True)
