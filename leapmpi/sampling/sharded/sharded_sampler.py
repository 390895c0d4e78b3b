"""Sampler whose ranks hold only the lists of their own vertices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from leapmpi.dataset.graph_types import GraphTypes
from leapmpi.sampling.block import Block
from leapmpi.sampling.epoch_order import epoch_order
from leapmpi.sampling.hash_frontier import HashFrontier
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import FRONTIER_GLOBAL, LOCAL, Drawn, Sampler
from leapmpi.sampling.sharded.answer_format import AnswerFormat
from leapmpi.sampling.sharded.list_copies import ListCopies
from leapmpi.sampling.sharded.owner_names import names_by_owner
from leapmpi.sampling.sharded.remote_lists import HopDraws, RemoteLists
from leapmpi.sampling.sharded.topology_shard import NoWholeTopology, TopologyShard
from leapmpi.system.counter_rng import ORDER, DrawKey

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator
    from leapmpi.sampling.training_edges import TrainingEdges


class ShardedSampler(Sampler):
    """Sampler with the draws of `inner` on a whole topology, to the bit, and edge data in its blocks.

    `sample` and `neighbours` are collective: all ranks call them with their own roots, equally often and in one order.
    There is no `topology`: reading it raises NoWholeTopology.
    """

    sharded = True

    def __init__(
        self,
        inner: HopSampler,
        shard: TopologyShard,
        communicator: Communicator,
        rank_offsets: np.ndarray,
        answers: AnswerFormat,
        original_ids: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Take `inner`, which draws from `shard.own`, and a finder of the original ids of any vertices, int64[k]."""
        self.fanouts, self.threads, self.weighted = inner.fanouts, inner.threads, inner.weighted
        self.family, self.leaves_edges_out = inner.family, inner.leaves_edges_out
        self.shard = shard
        self.answers = answers
        self._lists = RemoteLists(inner, shard, communicator, rank_offsets, answers)
        self._frontier = HashFrontier()
        self._find_original_ids = original_ids
        self._last_train: tuple[np.ndarray, np.ndarray] | None = None
        """Training vertices and their original ids: those that owners named, or the last ones read from files."""
        self.when_copied: Callable[[ListCopies], None] | None = None
        """Called on all ranks once remote lists are copied."""

    def copy_lists(self, room: int) -> None:
        """Copy what is requested most from other ranks, in at most `room` bytes, after the first samples.

        Called on all ranks alike, where `inner` draws from copies and no data of edges are carried.
        """
        own = self.shard.own
        edge_bytes = sum(array.itemsize for array in own.list_arrays.values())
        # Each entry of a list may be of another source, with its id and its name.
        edge_bytes += 0 if own.outside_degree is None else own.indices.itemsize + 8
        self._lists.copies = ListCopies(room, edge_bytes, self.inner)

    @property
    def copies(self) -> ListCopies | None:
        """Copies of remote lists, if there may be any."""
        return self._lists.copies

    @property
    def inner(self) -> HopSampler:
        """Sampler that draws from this rank's lists."""
        return self._lists.sampler

    @property
    def topology(self) -> NoReturn:  # type: ignore[override]
        """Raise NoWholeTopology."""
        raise NoWholeTopology(
            "run.topology: this needs the whole topology, which no rank has with sharded; use --topology node"
        )

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Sample; see Sampler.sample. Collective."""
        self._begin(key, roots, batch)
        return self._sample(key, roots, alone=False)

    def sample_here(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """Sample locally; see Sampler.sample_here. Vertices of other ranks draw nothing."""
        return self._sample(key, roots, alone=True)

    def forget(self) -> None:
        self.inner.forget()
        if self.copies is not None and self.copies.observes:
            self.copies.forget()

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        """Draw; see Sampler.neighbours. Collective."""
        self._begin(key, vertices, batch)
        self._lists.begin()
        found = self._lists.draw(key, hop, vertices)
        neighbours, weight, relation, _ = self._columns(found)
        return Drawn(found.indptr, neighbours, weight, relation)

    @property
    def repeats_draws(self) -> bool:
        """Whether `draw_own` repeats the draws of a sample: they depend on nothing but key, hop and list."""
        return self.inner.family == LOCAL and not self._lists.draws.collective

    def draw_own(self, key: DrawKey, hop: int, numbers: np.ndarray) -> Drawn:
        """Draw for own vertices `numbers` (int64[n]) again; neighbours are numbered as in the shard's lists. Local."""
        return self._lists.draws.draw(key, hop, numbers, alone=True)

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        """Draw one hop; see Sampler.hop. Collective."""
        self._begin(key, destinations, batch)
        (found,) = self._hops(key, range(hop, hop + 1), self.checked_roots(destinations), alone=False)
        return found

    @property
    def rank_offsets(self) -> np.ndarray:
        """First vertex of each rank: int64[ranks + 1]."""
        return self._lists.rank_offsets

    @property
    def communicator(self) -> Communicator:
        """Communicator of the ranks that hold the topology."""
        return self._lists.communicator

    @property
    def types(self) -> GraphTypes | None:
        return self.shard.own.types

    def original_ids(self, vertices: np.ndarray) -> np.ndarray:
        return self.shard.own.original_id[self.shard.own_numbers(vertices)]

    def name_roots(self, train: np.ndarray) -> None:
        """Fetch the original ids of `train` (int64[k]), by which `batches` orders them, from their owners. Collective.

        A rank that orders no batches passes none, and would read them from the part files.
        """
        names = self.names_of(train)
        if len(train):
            self._last_train = train, names

    def names_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the original ids int64[k] of `vertices` (int64[k], those of any ranks). Collective."""
        lists = self._lists
        return names_by_owner(vertices, self.shard, lists.communicator, lists.rank_offsets)

    def batches(
        self, train: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        order = epoch_order(train, self._original_ids_of(train), seed, epoch, stream)
        return self.inner.cut(order, seed, epoch, batch_size, stream)

    def edge_batches(
        self, edges: TrainingEdges, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        return self.inner.edge_batches(edges, seed, epoch, batch_size, stream)

    def edge_groups(self, times: np.ndarray, batch_size: int) -> Sequence[np.ndarray] | None:
        return self.inner.edge_groups(times, batch_size)

    def root_times(self, key: DrawKey, times: np.ndarray) -> None:
        self.inner.root_times(key, times)

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        """Leave edges out; see Sampler.leave_out. Sources of lists must be numbered."""
        # Keep edges to own vertices whose source is on a list of this rank.
        both = np.concatenate([edges, edges[:, ::-1]])
        both = both[(both[:, 1] >= self.shard.first) & (both[:, 1] < self.shard.end)]
        numbers = np.stack([self.shard.numbers_of(both[:, 0]), self.shard.own_numbers(both[:, 1])], axis=1)
        self.inner.leave_out_directed(key, numbers[numbers[:, 0] >= 0])

    def for_scoring(
        self,
        fanouts: tuple[int, ...],
        splits: Mapping[int, np.ndarray],
        batch_size: int,
        relation_fanouts: np.ndarray | None = None,
    ) -> ShardedSampler:
        inner = self.inner.for_scoring(fanouts, splits, batch_size, relation_fanouts)
        if inner is None:
            inner = NodeWiseSampler(self.shard.own, fanouts, self.threads, relation_fanouts)
        assert isinstance(inner, HopSampler), "what scores goes hop by hop where training does"
        return self._answered_by(inner, replace(self.answers, weighted=False))

    def scoring_groups(self, stream: int) -> Sequence[np.ndarray] | None:
        return self.inner.scoring_groups(stream)

    def describing_all(self) -> ShardedSampler:
        """Return the same sampler with original ids and degrees of the last hop's sources."""
        found = self._answered_by(self.inner, replace(self.answers, last=True))
        found._lists.copies, found.when_copied = self.copies, self.when_copied
        return found

    def counting(self) -> ShardedSampler:
        """Return a sampler with the same draws for dry runs: no copies are chosen by them, or spare requests."""
        return self._answered_by(self.inner, replace(self.answers, last=False))

    def _answered_by(self, inner: HopSampler, answers: AnswerFormat) -> ShardedSampler:
        """Return a sampler with the draws of `inner`, in replies of the format `answers`."""
        lists = self._lists
        found = ShardedSampler(
            inner, self.shard, lists.communicator, lists.rank_offsets, answers, self._find_original_ids
        )
        found._last_train = self._last_train
        return found

    def checked_roots(self, roots: np.ndarray) -> np.ndarray:
        """Check roots; see Sampler.checked_roots."""
        roots = np.ascontiguousarray(roots, np.int64)
        if len(roots) and not 0 <= roots.min() <= roots.max() < self.shard.vertices:
            raise ValueError(f"roots must be in [0, {self.shard.vertices})")
        return roots

    def _begin(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None) -> None:
        """Prepare the draws for a `batch`; None: for `roots`, gathered from all ranks if draws read the whole frontier.

        Collective.
        """
        if self.copies is not None and self.copies.sample_begins():
            self._lists.copy_most_requested(self.copies)
            if self.when_copied is not None:
                self.when_copied(self.copies)
        if batch is None and self.inner.family == FRONTIER_GLOBAL:
            roots = np.ascontiguousarray(roots, np.int64)
            counts = self.communicator.all_gather_rows(np.array([len(roots)]))[:, 0].copy()
            batch = np.unique(self.communicator.all_gather_pieces(roots, counts, "topology"))
        self.inner.begin(key, roots if batch is None else batch)

    def _original_ids_of(self, train: np.ndarray) -> np.ndarray:
        if self._last_train is None or not np.array_equal(self._last_train[0], train):
            self._last_train = train, self._find_original_ids(np.asarray(train))
        return self._last_train[1]

    def _sample(self, key: DrawKey, roots: np.ndarray, alone: bool) -> list[Block]:
        return self._hops(key, range(len(self.fanouts)), self.checked_roots(roots), alone)

    def _hops(self, key: DrawKey, numbers: range, roots: np.ndarray, alone: bool) -> list[Block]:
        """Return the blocks of the hops `numbers`; `roots` draw at the first."""
        frontier = self._frontier

        # Only destinations new in a hop are sent to their owners.
        hops: list[tuple[int, int, HopDraws, np.ndarray]] = []
        named = 0
        self._lists.begin()
        try:
            frontier.add(roots)
            if frontier.count < len(roots):
                raise ValueError("roots must be distinct")
            for hop in numbers:
                n_dst = frontier.count
                drawn = self._lists.draw(key, hop, frontier.src[named:], alone)
                named = n_dst
                positions = frontier.add(drawn.of_edges[0])
                hops.append((n_dst, frontier.count, drawn, positions))
            src = frontier.src.copy()
        finally:
            frontier.clear()

        # Sources of the last hop draw nothing, so a separate request describes them, if anything reads it.
        of_vertices = [drawn.of_vertices for _, _, drawn, _ in hops]
        if self.answers.last:
            of_vertices.append(self._described(src[named:], alone))
        about = [np.concatenate(column) for column in zip(*of_vertices, strict=True)]
        return [self._block(hop, *each, src, about) for hop, each in zip(numbers, hops, strict=True)]

    def _described(self, vertices: np.ndarray, alone: bool) -> list[np.ndarray]:
        """Return the facts about the last hop's sources."""
        if not alone:
            return self._lists.describe(vertices)
        return [vertices, *(np.zeros(len(vertices), column.dtype) for column in self.answers.of_vertices[1:])]

    def _columns(self, drawn: HopDraws) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, list[np.ndarray]]:
        """Return the sources, the sampler's weights and the relations of drawn edges, and their other columns."""
        sources, *columns = drawn.of_edges
        weight = columns.pop(0) if self.weighted else None
        relation, held = None, self.shard.own.relation
        if held is not None:
            relation = columns.pop(0).astype(held.dtype, copy=False)
        return sources, weight, relation, columns

    def _block(
        self,
        hop: int,
        n_dst: int,
        n_src: int,
        drawn: HopDraws,
        positions: np.ndarray,
        src: np.ndarray,
        about: list[np.ndarray],
    ) -> Block:
        """Return the block of a hop. Its sources are the first ones of the sample: views of the same arrays."""
        _, weight, relation, columns = self._columns(drawn)
        original, degree = about[0][:n_src], about[1][:n_src]
        arrays = src[:n_src], drawn.indptr, positions, original, degree, weight
        block = Block(hop, n_dst, *arrays, relation=relation)
        if not self.answers.numbers:
            return block
        if not self.answers.weights:
            return replace(block, edge_numbers=columns[0])
        numbers, edge_weight = columns
        of_edge = np.repeat(np.arange(n_dst), np.diff(drawn.indptr))
        # Without edges numpy's bincount returns integers.
        sums = np.bincount(of_edge, edge_weight.astype(np.float64), minlength=n_dst).astype(np.float64)
        return replace(
            block, edge_numbers=numbers, edge_weight=edge_weight, drawn_weight=sums, src_weight_sum=about[2][:n_src]
        )
