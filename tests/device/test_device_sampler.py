"""Draws in torch operations are those of the CPU's kernels to the bit, on a device that the CPU stands in for."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.dataset.graph_types import Relation
from leapmpi.dataset.topology import Topology
from leapmpi.device import lists
from leapmpi.device.device_frontier import DeviceTopology
from leapmpi.device.device_sampler import DeviceSampler, form_of, on_device
from leapmpi.nn.kernels.kernel_choice import standing_in
from leapmpi.nn.tensors import drawn_there, to_tensors
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers import node_wise
from leapmpi.system.counter_rng import PRESAMPLE, TRAIN, DrawKey
from tests.support import kinds, twin
from tests.support.same_blocks import same_blocks
from tests.support.typed_draws import SCHOLARS, TYPED, made, typed_topology

pytestmark = pytest.mark.compiles

CPU = torch.device("cpu")
OPTIONS = kinds.KINDS | {
    "weighted, alike": ("weights=uniform",),
    "weighted, edges": ("weights=edge",),
    "random-walk, far": ("walks=7", "steps=5", "stop=0.1"),
    "labor-i, kept": ("rounds=1", "kept-batches=3", "same-in-layers=yes"),
    "temporal, fractions": (),
    "temporal, all": ("draw=latest",),
}
HOST = "graph-saint, edges", "graph-saint, vertices"
"""Whose chances are computed, by functions that a device may round otherwise."""
LEAVING_OUT = "node-wise", "with-replacement", "labor-0", "weighted", "temporal"

fanouts_of_hops = st.lists(st.sampled_from([-1, 1, 2, 3, 10, 33, 1000]), min_size=1, max_size=3).map(tuple)


@pytest.fixture(autouse=True)
def _options(monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", OPTIONS)


def graph(vertices: int, edges: int, seed: int, carried: bool = False) -> Topology:
    """A graph with hubs, whose vertices are not numbered by original ids; `carried`: with weights of edges.

    Weights are so far apart that the order in which they are added up shows; some are 0.
    """
    rng = np.random.default_rng(seed)
    topology = twin.renumbered(twin.random_topology(vertices, edges, seed, hubs=4.0), rng.permutation(vertices))
    if not carried:
        return topology
    weight = (10.0 ** rng.uniform(-15, 15, topology.edges) * (rng.random(topology.edges) < 0.9)).astype(np.float32)
    sums = [sum(map(float, each)) for each in np.split(weight, topology.indptr[1:-1])]
    return dataclasses.replace(topology, edge_weight=weight, weight_sum=np.array(sums, np.float64))


def both(kind: str, topology: Topology, fanouts: tuple[int, ...], numbers: bool = False, device: torch.device = CPU):
    """A sampler of `kind`, and what draws on the stand-in for a device what it draws."""
    if kind.startswith("temporal"):
        topology = kinds.with_times(topology)
        shift = 0.5 if kind == "temporal, fractions" else 0
        topology = dataclasses.replace(topology, edge_time=topology.edge_time + shift)
    sampler = kinds.make(kind, topology, fanouts)
    found = with_edge_data(sampler, numbers)
    return found, DeviceSampler(found, DeviceTopology(topology, device))


def on_devices(carried: bool = False) -> list[str]:
    """The kinds that draw on a device."""
    without = HOST if carried else (*HOST, "weighted, edges")
    return [kind for kind in OPTIONS if kind not in without and not (carried and kind.startswith("random-walk"))]


@pytest.mark.parametrize("kind", on_devices())
@settings(deadline=None, max_examples=10, derandomize=True)
@given(st.integers(12, 60), st.integers(0, 900), st.integers(0, 2**32 - 1), fanouts_of_hops)
def test_blocks_are_those_of_the_cpu(kind, vertices, edges, seed, fanouts):
    if kind.startswith(("fast-gcn,", "fast-gcn", "ladies")):
        fanouts = fanouts[:1] * 2  # so many layers have the sizes
    sampler, drawing = both(kind, graph(vertices, edges, seed), fanouts)
    order = np.random.default_rng(seed).permutation(vertices)
    roots, batch = order[: vertices // 3 + 1], order[: vertices // 2 + 1]
    for iteration in (0, 1):
        key = DrawKey(TRAIN, seed, 1, iteration)
        same_blocks(drawing.sample(key, roots, batch), sampler.sample(key, roots, batch))


@pytest.mark.parametrize("kind", on_devices(carried=True))
@settings(deadline=None, max_examples=5, derandomize=True)
@given(st.integers(12, 60), st.integers(0, 900), st.integers(0, 2**32 - 1), st.booleans())
def test_blocks_carry_what_edges_carry(kind, vertices, edges, seed, weights):
    weights |= kind == "weighted, edges"
    sampler, drawing = both(kind, graph(vertices, edges, seed, weights), (7, 5), numbers=True)
    roots, key = np.random.default_rng(seed).permutation(vertices)[: vertices // 3 + 1], DrawKey(TRAIN, seed, 1, 0)
    found, expected = drawing.sample(key, roots), sampler.sample(key, roots)
    same_blocks(found, expected)
    for block, plain in zip(found, expected, strict=True):
        assert plain.edge_numbers is not None
        mine, theirs = (to_tensors(each).weights for each in (block, dataclasses.replace(block)))
        assert (mine is not None) == weights
        if weights:
            assert all(torch.equal(a, b) for a, b in zip(vars(mine).values(), vars(theirs).values(), strict=True))
    same_blocks([drawing.hop(key, 1, roots)], [sampler.hop(key, 1, roots)])


@pytest.mark.parametrize("kind", [kind for kind in OPTIONS if kind.startswith(LEAVING_OUT)])
@settings(deadline=None, max_examples=6, derandomize=True)
@given(st.integers(12, 60), st.integers(1, 900), st.integers(0, 2**32 - 1), st.sampled_from([0, 0.1, 0.6, 1]))
def test_edges_are_left_out_as_on_the_cpu(kind, vertices, edges, seed, share):
    rng = np.random.default_rng(seed)
    topology = graph(vertices, edges, seed, carried=kind == "weighted, edges" or bool(seed % 2))
    sampler, drawing = both(kind, topology, (4, -1, 3))
    destination = np.repeat(np.arange(vertices), np.diff(topology.indptr))
    targets = np.stack([topology.indices, destination], axis=1)[rng.random(topology.edges) < share]
    roots = rng.permutation(vertices)[: vertices // 3 + 1]
    for iteration in (0, 1):
        key = DrawKey(TRAIN, seed, 1, iteration)
        drawing.leave_out(key, targets)
        same_blocks(drawing.sample(key, roots), sampler.sample(key, roots))
    other = DrawKey(PRESAMPLE, seed, 1, 5)
    same_blocks(drawing.sample(other, roots), sampler.sample(other, roots))
    with pytest.raises(ValueError, match="were left out"):
        drawing.sample(key._replace(iteration=9), roots)


def test_the_other_samplers_draw_on_the_host(monkeypatch):
    topology = graph(40, 300, 1)
    kept = [kind for kind in kinds.KINDS if kind != "weighted, edges"]
    assert tuple(each for each in kept if form_of(kinds.make(each, topology, (3, 2))) is None) == HOST
    # Walks may end at vertices that are not in-neighbours: their edges carry nothing.
    assert form_of(with_edge_data(kinds.make("random-walk", topology, (3, 2)), numbers=True)) is None


@pytest.mark.parametrize("kind", on_devices(carried=True))
def test_what_is_asked_of_a_sampler_is_answered_as_on_the_cpu(kind):
    topology = graph(60, 500, 3, carried=True)
    sampler, drawing = both(kind, topology, (3, 2))
    train, key = np.arange(0, 60, 2), DrawKey(TRAIN, 7, 0, 1)
    assert drawing.drawing is sampler.drawing
    assert drawing.iterations(train, 8) == sampler.iterations(train, 8)
    batches, expected = (each.batches(train, 7, 0, 8) for each in (drawing, sampler))
    for mine, theirs in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(drawing.root_weights(key, train[:5], 8), sampler.root_weights(key, train[:5], 8))
    drawing.sample(key, train[:5])
    drawing.forget()
    same_blocks(drawing.sample(key, train[:5]), sampler.sample(key, train[:5]))
    found, plain = (each.neighbours(key, 1, train[:9]) for each in (drawing, sampler))
    np.testing.assert_array_equal(found.neighbours, plain.neighbours)


@pytest.mark.parametrize("kind", on_devices(carried=True))
def test_tables_of_bounded_size_change_no_bit(kind, monkeypatch):
    monkeypatch.setattr(lists, "MOST_AT_ONCE", 40)
    sampler, drawing = both(kind, graph(60, 900, 5, carried=True), (3, 4))
    key = DrawKey(TRAIN, 3, 1, 0)
    for roots in (np.arange(20), np.empty(0, np.int64)):
        same_blocks(drawing.sample(key, roots, np.arange(30)), sampler.sample(key, roots, np.arange(30)))


def test_a_draw_that_fails_leaves_no_trace(monkeypatch):
    topology = twin.random_topology(50, 400, 0)
    sampler = node_wise.build(Setup(topology, (3, 2), np.empty(0, np.int64), 0), None)
    drawing, key = DeviceSampler(sampler, DeviceTopology(topology, CPU)), DrawKey(TRAIN, 0, 0, 0)
    with monkeypatch.context() as patch:
        # Out of memory, for one: places are given by then, and not written down.
        patch.setattr(torch, "cat", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drawing.sample(key, np.arange(9))
    with pytest.raises(ValueError, match="distinct"):
        drawing.sample(key, np.array([1, 1]))
    same_blocks(drawing.sample(key, np.arange(5, 15)), sampler.sample(key, np.arange(5, 15)))


def test_the_host_gets_arrays_when_it_reads_them():
    topology = twin.random_topology(50, 400, 0)
    sampler = node_wise.build(Setup(topology, (3,), np.empty(0, np.int64), 0), None)
    drawing, key = DeviceSampler(sampler, DeviceTopology(topology, CPU)), DrawKey(TRAIN, 0, 0, 0)
    (block,), (plain,) = drawing.sample(key, np.arange(9)), sampler.sample(key, np.arange(9))
    assert (block.n_src, block.edges) == (plain.n_src, plain.edges)
    assert not {"indptr", "indices", "src_original", "src_degree"} & set(vars(block)), "training needs none"
    shorter = dataclasses.replace(block, indices=block.indices[:0])
    assert (shorter.edges, block.edges) == (0, plain.edges)
    assert not drawn_there(shorter, CPU)
    same_blocks([copy.copy(block)], [plain])


def star(degree):
    """A vertex with so many in-neighbours, which have none."""
    indptr = np.concatenate(([0], np.full(degree + 1, degree)))
    return Topology(indptr, np.arange(1, degree + 1, dtype=np.int32), np.arange(degree + 1))


@pytest.mark.parametrize("degree", [63, 64, 65, 3000])
@pytest.mark.parametrize("fanout", [1, 15, 60])
def test_long_lists(degree, fanout):
    sampler = node_wise.build(Setup(star(degree), (fanout,), np.empty(0, np.int64), 0), None)
    drawing = DeviceSampler(sampler, DeviceTopology(sampler.topology, CPU))
    key = DrawKey(TRAIN, 3, 0, 0)
    same_blocks(drawing.sample(key, np.array([0])), sampler.sample(key, np.array([0])))


def test_blocks_lie_on_the_device_already():
    topology = twin.random_topology(50, 400, 0)
    sampler = node_wise.build(Setup(topology, (3, 2), np.empty(0, np.int64), 0), None)
    with standing_in() as device:
        drawing = on_device(sampler, device, 1e9)
        blocks = drawing.sample(DrawKey(TRAIN, 0, 0, 0), np.arange(5))
        for block in blocks:
            assert drawn_there(block, device)
            assert to_tensors(block, device) is block.tensors
            assert block.tensors.edges.indices.dtype == torch.int64
            np.testing.assert_array_equal(block.tensors.edges.indices.numpy(), block.indices)
            np.testing.assert_array_equal(block.tensors.src_degree.numpy(), block.src_degree)


def test_what_does_not_fit_is_drawn_on_the_cpu():
    topology = twin.random_topology(50, 400, 0)
    sampler = node_wise.build(Setup(topology, (3,), np.empty(0, np.int64), 0), None)
    assert on_device(sampler, CPU, 1e9) is sampler
    with standing_in() as device:
        needed = DeviceTopology.needed_bytes(topology)
        assert on_device(sampler, device, needed - 1) is sampler
        assert isinstance(on_device(sampler, device, needed), DeviceSampler)


@pytest.mark.parametrize("kind", TYPED)
@settings(deadline=None, max_examples=6, derandomize=True)
@given(st.integers(1, 500), st.integers(0, 2**16), st.booleans(), st.booleans())
def test_typed_blocks_are_those_of_the_cpu(kind, edges, seed, wide, several):
    types = SCHOLARS
    if wide:
        rare = tuple(Relation("author", f"rare {r}", "paper") for r in range(300))
        types = dataclasses.replace(SCHOLARS, relations=(*SCHOLARS.relations, *rare))
    topology = dataclasses.replace(
        typed_topology(types, edges if not wide else 3, seed), edge_weight=None, weight_sum=None
    )
    given = ("*:cites:*=7,1", "*:names:*=all", "*:reviews:*=0,2") if several else ()
    sampler = made(kind, topology, relation_fanout=given)
    drawing = DeviceSampler(sampler, DeviceTopology(topology, CPU))
    roots = np.random.default_rng(seed).permutation(60)[:25]
    same_blocks(drawing.sample(kinds.KEY, roots), sampler.sample(kinds.KEY, roots))
    for block in drawing.sample(kinds.KEY, roots):
        kind_there, kind_here = block.tensors.relation.dtype, to_tensors(dataclasses.replace(block)).relation.dtype
        assert kind_there == kind_here
