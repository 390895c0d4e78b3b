"""Graphs of ranks as arithmetic: what is asked is what is sent, whatever is cached, and every edge is computed."""

import numpy as np
import pytest

from leapmpi.dataset.topology import Topology
from leapmpi.exchange.layer_graphs import KINDS, PARTIAL, RAW, GraphBuilder, Split, build_here
from leapmpi.forecast.virtual_world import VirtualWorld
from leapmpi.full_batch.full_batch_graphs import advice
from leapmpi.plan.memory_model import Needs, too_much
from leapmpi.sampling.node_wise import NodeWiseSampler

VERTICES, LAYERS = 60, 3
OFFSETS = np.array([0, 25, 26, 60])


class AnySplit:
    """Caches about half, by a hash; `kind` in all layers, from some owners."""

    def __init__(self, rank, kind):
        self.rank, self.kind = rank, kind

    def costs(self, inputs):
        return np.where([each == self.kind for each in KINDS], 0.0, np.inf)

    def split(self, inputs, kind):
        vertices = inputs.block.src
        return Split((vertices * 7 + inputs.layer + self.rank) % 5 < 2, (np.arange(3) + inputs.layer) % 2 == 0)


@pytest.fixture(scope="module")
def topology():
    rng = np.random.default_rng(3)
    indptr = np.concatenate(([0], np.cumsum(rng.integers(0, 7, VERTICES))))
    lists = [np.sort(rng.choice(VERTICES, degree, replace=False)) for degree in np.diff(indptr)]
    return Topology(indptr, np.concatenate(lists).astype(np.int32), np.arange(VERTICES))


@pytest.fixture(params=KINDS)
def graphs(request, topology):
    sampler = NodeWiseSampler(topology, (-1,), 1)
    roots = np.array([1, 4, 24, 30, 59])
    builders = [
        GraphBuilder(
            sampler, roots[(roots >= OFFSETS[rank]) & (roots < OFFSETS[rank + 1])], OFFSETS, rank, LAYERS,
            AnySplit(rank, request.param),
        )
        for rank in range(3)
    ]  # fmt: skip
    world = VirtualWorld(3)
    return world.run(lambda rank: build_here(builders[rank], world.communicators[rank]))


def rows_below(graph, layer):
    """Vertices of the output of the layer below."""
    return graph.plans[layer - 1].block.dst


def test_what_is_sent_is_what_is_received(graphs):
    for layer in range(LAYERS):
        routes = [graph.plans[layer].rows for graph in graphs]
        kinds = [graph.plans[layer].by_kind for graph in graphs]
        for found in filter(all, (routes, kinds)):
            sent = np.array([each.sent_counts for each in found])
            assert np.array_equal(sent, np.array([each.received_counts for each in found]).T)
        for asker, graph in enumerate(graphs if layer else []):
            matrix = graph.plans[layer].by_kind.vertices if kinds[0] else graph.plans[layer].block.src
            wanted = np.split(matrix[routes[asker].received_positions], np.cumsum(routes[asker].received_counts)[:-1])
            for owner, vertices in enumerate(wanted):
                parts = np.split(routes[owner].sent_rows, np.cumsum(routes[owner].sent_counts)[:-1])
                assert np.array_equal(rows_below(graphs[owner], layer)[parts[asker]], vertices)


def test_every_input_is_here_or_comes(graphs):
    for graph in graphs:
        for layer, plan in enumerate(graph.plans):
            if plan.kind == RAW and layer:
                filled = np.concatenate((plan.rows.local_positions, plan.rows.received_positions))
                assert np.array_equal(np.sort(filled), np.arange(plan.block.n_src))
                own = rows_below(graph, layer)[plan.rows.local_rows]
                assert np.array_equal(own, plan.block.src[plan.rows.local_positions])
            elif plan.kind != RAW:
                here = plan.by_kind.source_rows >= 0
                assert np.array_equal(plan.by_kind.vertices[plan.by_kind.source_rows[here]], plan.block.src[here])
                if plan.kind != PARTIAL:
                    assert np.array_equal(np.sort(plan.by_kind.received), np.flatnonzero(~here))


def test_roots_are_the_first_destinations_of_all_layers(graphs):
    for graph in graphs:
        for plan in graph.plans:
            assert np.array_equal(plan.block.dst[: len(graph.roots)], graph.roots)


@pytest.mark.parametrize(
    ("bytes", "free", "limit", "sentence"),
    [
        ((5, 9), (100, 100), 9, ""),
        ((5, 9), (100, 100), 8, "about 9 B on rank 1, more than --memory-limit 8 B"),
        ((5, 9), (14, 20), 100, ""),
        ((5, 9), (20, 13), 100, "about 9 B on rank 1; the ranks on a need 14 B of 13 B"),
        ((5, 9), (None, None), 100, ""),
    ],
)
def test_memory_is_held_against_limit_and_host(bytes, free, limit, sentence):
    ranks = [Needs("a", *each) for each in zip(bytes, (0, 0), free, strict=True)]
    found, room = too_much("a full batch", ranks, limit)
    assert found == (f"a full batch takes {sentence}" if sentence else "")
    assert room == (min(free) / 2 if "the ranks on a" in sentence else limit)


def test_advice_names_what_takes_less():
    least = "take fewer --hidden columns or more ranks, or train mini-batches (--strategy leap)"
    assert advice("depcache", True, 2).startswith("use depcomm, which computes and keeps nothing twice, give fewer")
    assert advice("hybrid", False, 1) == f"give a --memory-limit, which limits what is cached, {least}"
    assert advice("hybrid", True, 1) == advice("depcomm", False, 1) == least
    assert advice("depcomm", False, 1, carries=True) == "take fewer --hidden columns or more ranks"
