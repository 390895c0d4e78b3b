"""Owners draw for others what these would draw themselves, and answer in the words that were foretold."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.forecast.virtual_world import VirtualWorld
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.samplers.temporal import TimesOf
from leapmpi.sampling.sharded.answer_format import AnswerFormat, answer_format
from leapmpi.sampling.sharded.frontier_ranks import FrontierRanks
from leapmpi.sampling.sharded.list_copies import OBSERVED, ListCopies
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard, shard_bytes, shard_of
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support import kinds, twin
from tests.support.thread_ranks import on_ranks
from tests.support.typed_draws import SCHOLARS, TYPED, made, typed_topology

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 7, 1, 2)
VERTICES = 90
TIMED = ["temporal", "temporal, latest"]
FRONTIER = ["ladies", "ladies, unbiased", "labor-i", "labor-i, unbiased"]
NAMED = ["random-walk", *FRONTIER, "labor-0", "labor-0, fixed-size=no", "weighted", "weighted, unbiased"]
KINDS = [*TIMED, "node-wise", "with-replacement", *NAMED]
OFFSETS = {1: [0, 90], 2: [0, 89, 90], 4: [0, 30, 30, 31, 90]}
"""First vertices of the ranks; one has a single vertex, one has none."""


@pytest.fixture(scope="module")
def whole() -> Topology:
    return kinds.with_times(twin.random_topology(vertices=VERTICES, edges=900, seed=5, hubs=4.0))


def with_weights(topology: Topology) -> Topology:
    weight = (np.arange(topology.edges) % 7).astype(np.float32) / 2
    of_edge = np.repeat(np.arange(topology.vertices), np.diff(topology.indptr))
    return replace(topology, edge_weight=weight, weight_sum=np.bincount(of_edge, weight, topology.vertices))


def cut(topology: Topology, first: int, end: int, named: bool) -> TopologyShard:
    """The shard of the vertices `first` to `end`, made by plain Python."""
    edges = slice(topology.indptr[first], topology.indptr[end])
    indptr = topology.indptr[first : end + 1] - topology.indptr[first]
    ids, original, degree, outside = topology.indices[edges], topology.original_id[first:end], None, None
    if named:
        outside = np.array(sorted({int(u) for u in ids if not first <= u < end}), topology.indices.dtype)
        number = {int(u): end - first + i for i, u in enumerate(outside)}
        ids = np.array([u - first if first <= u < end else number[int(u)] for u in ids], topology.indices.dtype)
        original = np.concatenate((original, topology.original_id[outside]))
        degree = topology.degree(outside)
    weight = None if topology.edge_weight is None else topology.edge_weight[edges]
    sums = None if topology.weight_sum is None else topology.weight_sum[first:end]
    time = None if topology.edge_time is None else topology.edge_time[edges]
    relation = None if topology.relation is None else topology.relation[edges]
    typed = {"relation": relation, "types": topology.types, "outside_degree": degree}
    own = Topology(indptr, ids, original, weight, sums, time, **typed)
    return TopologyShard(own, first, end, int(edges.start), topology.vertices, topology.edges, outside)


def sampler_of(rank, topology, kind, offsets, answers: AnswerFormat) -> ShardedSampler:
    shard = cut(
        topology,
        *offsets[rank.rank : rank.rank + 2],
        named=kind in NAMED or answers.numbers,
    )
    inner = kinds.make(kind, shard.own, (4, 3), train=np.empty(0, np.int64))
    if kind in FRONTIER:
        inner.share(FrontierRanks(shard, rank, np.array(offsets)))
    if kind in TIMED:
        # All vertices may be roots: their times have come from all ranks.
        inner.root_time = TimesOf(np.arange(VERTICES), kinds.make(kind, topology, (4, 3)).root_time)
    return ShardedSampler(inner, shard, rank, np.array(offsets), answers, lambda ids: topology.original_id[ids])


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", TYPED)
def test_typed_blocks_and_bytes_are_those_of_a_whole_topology(kind, ranks):
    # Edge data would need named sources whatever the sampler.
    whole = replace(typed_topology(SCHOLARS, 300, 8), edge_weight=None, weight_sum=None)
    offsets, plain = np.array([0, 41, 62, 105] if ranks == 3 else [0, 53, 105]), made(kind, whole)
    answers = replace(answer_format(whole.vertices, whole.edges, plain.weighted), relations=True)
    roots = [np.random.default_rng(rank).permutation(60)[:20] for rank in range(ranks)]
    batch = np.unique(np.concatenate(roots))

    def of_rank(rank):
        shard = cut(whole, *offsets[rank.rank : rank.rank + 2].tolist(), named=True)
        inner = made(kind, shard.own)
        if kind.startswith("temporal"):
            inner.root_time = TimesOf(np.arange(105), plain.root_time)
        return ShardedSampler(inner, shard, rank, offsets, answers, lambda ids: whole.original_id[ids])

    def work(rank):
        sampler = of_rank(rank)
        first = sampler.sample(KEY, roots[rank.rank], batch)
        sent = dict(rank.sent)
        return first, sampler.neighbours(KEY, 1, roots[rank.rank], batch), sent

    world, found = VirtualWorld(ranks), on_ranks(ranks, work)
    counted = world.run(lambda rank: of_rank(world.communicators[rank]).sample(KEY, roots[rank], batch))
    for rank, (blocks, drawn, _) in enumerate(found):
        same(blocks, plain.sample(KEY, roots[rank], batch))
        expected = plain.neighbours(KEY, 1, roots[rank], batch)
        assert drawn.relation.tolist() == expected.relation.tolist()
        assert drawn.neighbours.tolist() == expected.neighbours.tolist()
        same(counted[rank], blocks)
    assert [sent["topology"] for _, _, sent in found] == world.take().sent["topology"].tolist()


def same(got, wanted) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        for name, value in vars(theirs).items():
            found = getattr(ours, name)
            assert (found is None) == (value is None), name
            if value is not None:
                assert np.asarray(found).dtype == np.asarray(value).dtype, name
                np.testing.assert_array_equal(found, value, name)


@pytest.mark.parametrize("ranks", OFFSETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("largest", [VERTICES, 1 << 40], ids=["narrow", "wide"])
def test_blocks_and_bytes_are_those_of_a_whole_topology(kind, ranks, largest, whole):
    offsets, plain = OFFSETS[ranks], kinds.make(kind, whole, (4, 3))
    answers = answer_format(largest, whole.edges, plain.weighted)
    roots = [np.random.default_rng(rank).permutation(VERTICES)[: 25 * (rank != 1)] for rank in range(ranks)]

    batch = np.unique(np.concatenate(roots))

    def work(rank):
        sampler = sampler_of(rank, whole, kind, offsets, answers)
        return sampler.sample(KEY, roots[rank.rank], batch), rank.sent, rank.exchanges

    world, found = VirtualWorld(ranks), on_ranks(ranks, work)
    counted = world.run(
        lambda rank: sampler_of(world.communicators[rank], whole, kind, offsets, answers).sample(
            KEY, roots[rank], batch
        )
    )
    for rank, (blocks, _, _) in enumerate(found):
        same(blocks, plain.sample(KEY, roots[rank], batch))
        same(counted[rank], blocks)
    assert [sent["topology"] for _, sent, _ in found] == world.take().sent["topology"].tolist()
    # Every rank makes the same exchanges, whatever it has to ask: names and answers at each hop, then names alone.
    if kind in FRONTIER:
        return
    # Walks make three more for each step after the first: vertices, words, answers.
    steps = plain.options.steps - 1 if kind == "random-walk" else 0
    assert {exchanges for _, _, exchanges in found} == {2 * (2 + 3 * steps) + 2}


@pytest.mark.parametrize("ranks", OFFSETS)
@pytest.mark.parametrize("kind", ["node-wise", "with-replacement"])
@pytest.mark.parametrize("room", [0, 500, 1 << 20])
def test_copied_lists_draw_the_same_and_travel_no_more(kind, ranks, room, whole):
    offsets, plain = OFFSETS[ranks], kinds.make(kind, whole, (4, 3))
    answers = answer_format(VERTICES, whole.edges, plain.weighted)
    keys = [DrawKey(TRAIN, 7, 1, iteration) for iteration in range(OBSERVED + 2)]
    roots = [np.random.default_rng(rank).permutation(VERTICES)[: 25 * (rank != 1)] for rank in range(ranks)]

    def work(rank, copies=True):
        sampler = sampler_of(rank, whole, kind, offsets, answers)
        if copies:
            sampler.copy_lists(room)
        found = [sampler.sample(key, roots[rank.rank]) for key in keys[:-1]]
        before = rank.sent["topology"]
        alone = sampler.sample_here(keys[-1], roots[rank.rank][:3])
        found.append(sampler.sample(keys[-1], roots[rank.rank]))
        return found, alone, rank.sent["topology"] - before, sampler.copies

    copied, requested = (on_ranks(ranks, work), on_ranks(ranks, lambda rank: work(rank, copies=False)))
    for rank, (blocks, alone, _, copies) in enumerate(copied):
        for key, each in zip(keys, blocks, strict=True):
            same(each, plain.sample(key, roots[rank]))
        same(alone, requested[rank][1])
        held = 24 * (len(copies.known) + len(copies.lists))
        held += whole.indices.itemsize * int(whole.degree(copies.lists).sum())
        assert held <= room
        known = copies.known
        assert not ((offsets[rank] <= known) & (known < offsets[rank + 1])).any(), "own lists are here"
    sent, whole_sent = (sum(each[2] for each in found) for found in (copied, requested))
    if room == 0 or ranks == 1:
        assert sent == whole_sent
    elif ranks == 4:
        assert sent < whole_sent
        assert all(0 < copies.spared <= 1 for (*_, copies), each in zip(copied, roots, strict=True) if len(each))
    if room == 1 << 20 and ranks == 4:
        assert sent < whole_sent / 2, "few lists are drawn for the first time after so many samples"


@pytest.mark.parametrize("kind", ["node-wise", "with-replacement"])
def test_copied_lists_of_relations_draw_the_same(kind):
    whole = replace(typed_topology(SCHOLARS, 300, 8), edge_weight=None, weight_sum=None)
    offsets, plain = np.array([0, 41, 62, 105]), made(kind, whole)
    answers = replace(answer_format(whole.vertices, whole.edges), relations=True)
    roots = [np.random.default_rng(rank).permutation(60)[:20] for rank in range(3)]
    keys = [DrawKey(TRAIN, 7, 1, iteration) for iteration in range(OBSERVED + 1)]

    def work(rank):
        # Sources are numbered, as where inference reads all lists.
        shard = cut(whole, *offsets[rank.rank : rank.rank + 2].tolist(), named=True)
        inner = made(kind, shard.own)
        sampler = ShardedSampler(inner, shard, rank, offsets, answers, lambda ids: whole.original_id[ids])
        sampler.copy_lists(1 << 20)
        return [sampler.sample(key, roots[rank.rank]) for key in keys], len(sampler.copies.lists)

    for rank, (found, copies) in enumerate(on_ranks(3, work)):
        assert copies
        for key, blocks in zip(keys, found, strict=True):
            same(blocks, plain.sample(key, roots[rank]))


def test_samples_before_training_choose_no_copies(whole):
    answers, offsets = answer_format(VERTICES, whole.edges), OFFSETS[2]
    keys = [DrawKey(TRAIN, 7, 1, iteration) for iteration in range(OBSERVED + 1)]

    def work(rank, dry):
        sampler = sampler_of(rank, whole, "node-wise", offsets, answers)
        sampler.copy_lists(600)
        for key in keys[:dry]:
            sampler.sample(key, np.arange(9))
        sampler.forget()
        for key in keys:
            sampler.sample(key, np.arange(20, 30))
        sampler.forget()
        return sampler.copies.known, sampler.copies.lists

    wanted, found = (on_ranks(2, partial(work, dry=dry)) for dry in (0, 3))
    for ones, others in zip(wanted, found, strict=True):
        assert len(ones[0])
        for one, other in zip(ones, others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_spares_most_for_its_size_is_copied():
    copies = ListCopies(48 + 40 + 48 + 4 + 24, 4, lambda lists: pytest.fail("nothing is held yet"))
    ids = np.array([9, 3, 5])
    copies.sample_begins()
    copies.note_degrees(ids, np.array([10, 1000, 1]))
    copies.note_draws(np.array([3, 9]), np.array([100, 80]))
    copies.note_descriptions(np.array([7]), 12)
    copies.sample_begins()
    copies.note_draws(ids, np.array([300, 500, 100]))
    copies.note_descriptions(np.array([7, 8]), 12)
    # One list is too large. Facts about vertex 7 were requested twice, those of 8 once.
    known, lists = copies.chosen()
    assert known.tolist() == [5, 7, 9]
    assert lists.tolist() == [5, 9]
    # The second sample alone would have chosen the same but for vertex 8; it says what to expect of the first.
    assert copies.spared == (80 + 12) / (100 + 80 + 12)


@pytest.mark.parametrize("ranks", OFFSETS)
@pytest.mark.parametrize("kind", ["node-wise", "labor-0"])
def test_weights_and_numbers_of_edges_follow_the_draws(kind, ranks, whole):
    weighted, offsets = with_weights(whole), OFFSETS[ranks]
    plain = with_edge_data(kinds.make(kind, weighted, (4, 3)), numbers=True)
    answers = answer_format(VERTICES, whole.edges, numbers=True, weights=True)
    roots = np.arange(0, VERTICES, 3)
    for blocks in on_ranks(ranks, lambda rank: sampler_of(rank, weighted, kind, offsets, answers).sample(KEY, roots)):
        same(blocks, plain.sample(KEY, roots))


def test_without_the_last_names_only_the_last_block_lacks_them(whole):
    answers = replace(answer_format(VERTICES, whole.edges), last=False)
    plain = kinds.make("node-wise", whole, (4, 3)).sample(KEY, np.arange(5))
    for got in on_ranks(
        2, lambda rank: sampler_of(rank, whole, "node-wise", OFFSETS[2], answers).sample(KEY, np.arange(5))
    ):
        same(got[:1], plain[:1])
        n_dst = plain[1].n_dst
        last = replace(plain[1], src_original=plain[1].src_original[:n_dst], src_degree=plain[1].src_degree[:n_dst])
        same(got[1:], [last])


def test_a_vertex_is_named_once_in_a_sample(whole):
    answers = replace(answer_format(VERTICES, whole.edges), last=False)

    def work(rank):
        sampler = sampler_of(rank, whole, "node-wise", OFFSETS[2], answers)
        roots = np.arange(40) if rank.rank == 1 else np.empty(0, np.int64)
        blocks = sampler.sample(KEY, roots)
        away = int((blocks[-1].dst < 89).sum())
        return rank.sent["topology"], 4 * away

    (_, _), (sent, names) = on_ranks(2, work)
    assert sent == names


def test_what_a_rank_draws_here_needs_no_other(whole):
    answers = answer_format(VERTICES, whole.edges)

    def work(rank):
        found = sampler_of(rank, whole, "node-wise", OFFSETS[2], answers).sample_here(KEY, np.arange(85, 90))
        return found, rank.exchanges

    for rank, (blocks, exchanges) in enumerate(on_ranks(2, work)):
        first, end = OFFSETS[2][rank : rank + 2]
        for block in blocks:
            own = (block.dst >= first) & (block.dst < end)
            assert not np.diff(block.indptr)[~own].any()
        assert exchanges == 0


def test_nobody_reads_a_topology_that_is_not_there(whole):
    (error,) = on_ranks(1, lambda rank: _read(sampler_of(rank, whole, "node-wise", [0, 90], answer_format(90, 900))))
    assert "use --topology node" in error


def _read(sampler) -> str:
    with pytest.raises(ConfigError) as found:
        _ = sampler.topology
    assert not any(hasattr(sampler, name) for name in ("no_such_name", "topology"))
    assert getattr(sampler, "topology", None) is None
    return str(found.value)


@pytest.mark.parametrize("named", [False, True])
def test_a_shard_of_a_whole_topology_and_its_bytes(named, whole):
    topology = with_weights(whole)
    for first, end in ((0, 30), (30, 30), (30, 90)):
        wanted, found = cut(topology, first, end, named), shard_of(topology, first, end, named)
        same([found.own], [wanted.own])
        np.testing.assert_array_equal(found.outside if named else [], wanted.outside if named else [])
        assert (found.first_edge, found.vertices, found.edges) == (wanted.first_edge, wanted.vertices, wanted.edges)
        assert wanted.nbytes == shard_bytes(shard_of(topology, first, end, False), named)
