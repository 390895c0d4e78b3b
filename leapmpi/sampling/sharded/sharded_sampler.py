"""ShardedSampler: the blocks of a sampler that draws from lists, where each rank holds those of its own vertices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.sampling.block import Block
from leapmpi.sampling.epoch_order import epoch_order
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import FRONTIER_GLOBAL, Drawn, Sampler
from leapmpi.sampling.sharded.answer_format import AnswerFormat
from leapmpi.sampling.sharded.hash_frontier import HashFrontier
from leapmpi.sampling.sharded.remote_lists import HopDraws, RemoteLists
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import ORDER, DrawKey

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator
    from leapmpi.sampling.training_edges import TrainingEdges


class ShardedSampler(Sampler):
    """Draws as `inner` does on a whole topology, to the bit; its blocks carry what edges carry.

    `sample` and `neighbours` are collective: all ranks call them with their own roots, as often and in one order. There
    is no `topology` to read: who asks for it gets a ConfigError.
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
        """`inner` draws from `shard.own`; `original_ids` finds those of any vertices, int64[k] each, for batches."""
        self.fanouts, self.threads, self.weighted = inner.fanouts, inner.threads, inner.weighted
        self.leaves_edges_out = inner.leaves_edges_out
        self.shard = shard
        self.answers = answers
        self._lists = RemoteLists(inner, shard, communicator, rank_offsets, answers)
        self._frontier = HashFrontier()
        self._find_original_ids = original_ids
        self._last_train: tuple[np.ndarray, np.ndarray] | None = None
        """Training vertices and their original ids: files are read once."""

    @property
    def inner(self) -> HopSampler:
        """What draws from this rank's lists."""
        return self._lists.sampler

    def __getattr__(self, name: str) -> NoReturn:
        if name == "topology":
            raise ConfigError(
                "run.topology: sharded leaves no rank with the whole topology, which this needs; use --topology node"
            )
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """See Sampler.sample. Collective."""
        self._begin(key, roots, batch)
        return self._sample(key, roots, alone=False)

    def sample_here(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        """See Sampler.sample_here: vertices of other ranks draw nothing."""
        return self._sample(key, roots, alone=True)

    def forget(self) -> None:
        self.inner.forget()

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        """See Sampler.neighbours. Collective."""
        self._begin(key, vertices, batch)
        self._lists.begin()
        found = self._lists.draw(key, hop, vertices)
        return Drawn(found.indptr, found.of_edges[0], found.of_edges[1] if self.weighted else None)

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        """See Sampler.hop. Collective."""
        self._begin(key, destinations, batch)
        (found,) = self._hops(key, range(hop, hop + 1), self.checked_roots(destinations), alone=False)
        return found

    @property
    def rank_offsets(self) -> np.ndarray:
        """int64[ranks + 1]: which rank holds the lists of which vertices."""
        return self._lists.rank_offsets

    @property
    def communicator(self) -> Communicator:
        """By which the ranks name vertices to each other."""
        return self._lists.communicator

    def original_ids(self, vertices: np.ndarray) -> np.ndarray:
        return self.shard.own.original_id[self.shard.own_numbers(vertices)]

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
        """See Sampler.leave_out; sources of lists must be numbered."""
        # Of both directions those to own vertices, from sources that are on a list here.
        both = np.concatenate([edges, edges[:, ::-1]])
        both = both[(both[:, 1] >= self.shard.first) & (both[:, 1] < self.shard.end)]
        numbers = np.stack([self.shard.numbers_of(both[:, 0]), self.shard.own_numbers(both[:, 1])], axis=1)
        self.inner.leave_out_directed(key, numbers[numbers[:, 0] >= 0])

    def for_scoring(
        self, fanouts: tuple[int, ...], splits: Mapping[int, np.ndarray], batch_size: int
    ) -> ShardedSampler:
        lists = self._lists
        inner = self.inner.for_scoring(fanouts, splits, batch_size)
        if inner is None:
            inner = NodeWiseSampler(self.shard.own, fanouts, self.threads)
        assert isinstance(inner, HopSampler), "what scores goes hop by hop where training does"
        answers = replace(self.answers, weighted=False)
        return ShardedSampler(
            *(inner, self.shard, lists.communicator, lists.rank_offsets, answers, self._find_original_ids)
        )

    def scoring_groups(self, stream: int) -> Sequence[np.ndarray] | None:
        return self.inner.scoring_groups(stream)

    def describing_all(self) -> ShardedSampler:
        """The same, but that original ids and degrees of the last hop's sources are asked for."""
        lists, answers = self._lists, replace(self.answers, last=True)
        return ShardedSampler(
            *(self.inner, self.shard, lists.communicator, lists.rank_offsets, answers, self._find_original_ids)
        )

    def checked_roots(self, roots: np.ndarray) -> np.ndarray:
        """See Sampler.checked_roots."""
        roots = np.ascontiguousarray(roots, np.int64)
        if len(roots) and not 0 <= roots.min() <= roots.max() < self.shard.vertices:
            raise ValueError(f"roots must lie in [0, {self.shard.vertices})")
        return roots

    def _begin(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None) -> None:
        """Prepare the draws for a `batch`; None: for `roots`, those of all ranks where draws read the whole frontier.

        Collective.
        """
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
        """The blocks of the hops `numbers`, the first of which `roots` draw."""
        frontier = self._frontier

        # Hop by hop: what the frontier draws joins the frontier; new ones are named to their owners.
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

        # What is known of sources. Those of the last hop draw nothing: their owners are asked where somebody reads it.
        of_vertices = [drawn.of_vertices for _, _, drawn, _ in hops]
        if self.answers.last:
            of_vertices.append(self._described(src[named:], alone))
        about = [np.concatenate(column) for column in zip(*of_vertices, strict=True)]
        return [self._block(hop, *each, src, about) for hop, each in zip(numbers, hops, strict=True)]

    def _described(self, vertices: np.ndarray, alone: bool) -> list[np.ndarray]:
        """What is known of the last hop's sources."""
        if not alone:
            return self._lists.describe(vertices)
        return [vertices, *(np.zeros(len(vertices), column.dtype) for column in self.answers.of_vertices[1:])]

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
        """The block of a hop; sources are the first ones of the sample: views of the same arrays."""
        _, *columns = drawn.of_edges
        weight = columns.pop(0) if self.weighted else None
        original, degree = about[0][:n_src], about[1][:n_src]
        block = Block(hop, n_dst, src[:n_src], drawn.indptr, positions, original, degree, weight)
        if not self.answers.numbers:
            return block
        if not self.answers.weights:
            return replace(block, edge_numbers=columns[0])
        numbers, edge_weight = columns
        of_edge = np.repeat(np.arange(n_dst), np.diff(drawn.indptr))
        # Of no edges at all numpy counts whole numbers.
        sums = np.bincount(of_edge, edge_weight.astype(np.float64), minlength=n_dst).astype(np.float64)
        return replace(
            block, edge_numbers=numbers, edge_weight=edge_weight, drawn_weight=sums, src_weight_sum=about[2][:n_src]
        )
