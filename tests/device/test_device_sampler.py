"""Draws in torch operations are those of the CPU's kernels to the bit, on a device that the CPU stands in for."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.dataset.topology import Topology
from leapmpi.device import draws, weighted_draws
from leapmpi.device.device_frontier import DeviceTopology
from leapmpi.device.device_sampler import DeviceSampler, on_device
from leapmpi.device.hashing import bounded, bounded_wide, fold, in_order, multiple_of_share, signed
from leapmpi.nn.kernels.kernel_choice import standing_in
from leapmpi.nn.tensors import drawn_there, to_tensors
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers import labor_0, node_wise, random_walk, weighted, with_replacement
from leapmpi.system import counter_rng
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support import twin

pytestmark = pytest.mark.compiles

CPU = torch.device("cpu")
KINDS = {
    "node-wise": lambda setup: node_wise.build(setup, None),
    "with-replacement": lambda setup: with_replacement.build(setup, None),
    "labor-0": lambda setup: labor_0.build(setup, labor_0.Options()),
    "labor-0, as many on average": lambda setup: labor_0.build(setup, labor_0.Options(fixed_size=False)),
    "weighted": lambda setup: weighted.build(setup, weighted.Options()),
    "weighted, by degree": lambda setup: weighted.build(setup, weighted.Options("degree", row_normalise=False)),
    "weighted, alike": lambda setup: weighted.build(setup, weighted.Options("uniform")),
    "random-walk": lambda setup: random_walk.build(setup, random_walk.Options()),
    "random-walk, far": lambda setup: random_walk.build(setup, random_walk.Options(walks=7, steps=5, stop=0.1)),
    "labor-0, kept": lambda setup: labor_0.build(setup, labor_0.Options(kept_batches=3, same_in_layers=True)),
}
words = st.integers(0, 2**64 - 1)


def unsigned(tensor):
    return [int(each) % 2**64 for each in tensor]


@settings(deadline=None, max_examples=100)
@given(words, st.lists(st.integers(0, 2**63 - 1), min_size=1, unique=True), st.integers(1, 2**32))
def test_words_are_those_of_the_kernels(base, names, n):
    found = fold(signed(base), torch.tensor(names))
    expected = [int(counter_rng.fold(np.uint64(base), name)) for name in names]
    assert unsigned(found) == expected
    assert bounded(found, n).tolist() == [(each * n) >> 64 for each in expected]
    assert bounded_wide(found, torch.tensor(n * 2**29 + 7)).tolist() == [
        (each * (n * 2**29 + 7)) >> 64 for each in expected
    ]
    assert in_order(found).argsort().tolist() == np.argsort(np.array(expected, np.uint64)).tolist()


@given(st.integers(1, 2**40), st.integers(0, 2**40))
def test_shares_of_all_words(parts, count):
    count = min(count, parts)
    (found,) = unsigned(multiple_of_share(torch.tensor([parts]), torch.tensor([count])))
    assert found == (2**64 - 1) // parts * count


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=30, derandomize=True)
@given(
    st.integers(1, 60), st.integers(0, 900), st.integers(0, 2**32 - 1),
    st.lists(st.sampled_from([-1, 1, 2, 3, 10, 33, 1000]), min_size=1, max_size=3).map(tuple),
)  # fmt: skip
def test_blocks_are_those_of_the_cpu(kind, vertices, edges, seed, fanouts):
    topology = twin.random_topology(vertices, edges, seed, hubs=4.0)
    setup = Setup(topology, fanouts, np.empty(0, np.int64), 0)
    sampler = KINDS[kind](setup)
    drawing = DeviceSampler(sampler, DeviceTopology(topology, CPU))
    roots = np.random.default_rng(seed).permutation(vertices)[: vertices // 3 + 1]
    for iteration in (0, 1):
        key = DrawKey(TRAIN, seed, 1, iteration)
        same_blocks(drawing.sample(key, roots), sampler.sample(key, roots))


def same_blocks(found, expected):
    for block, plain in zip(found, expected, strict=True):
        assert (block.hop, block.n_dst) == (plain.hop, plain.n_dst)
        for name in ("src", "indptr", "indices", "src_original", "src_degree"):
            mine, theirs = getattr(block, name), getattr(plain, name)
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
        assert (block.weight is None) == (plain.weight is None)
        if plain.weight is not None:
            assert block.weight.dtype == plain.weight.dtype
            np.testing.assert_array_equal(block.weight, plain.weight)
            assert drawn_there(block, CPU)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_bounded_size_change_no_bit(kind, monkeypatch):
    for module in (draws, weighted_draws):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 40)
    topology = twin.random_topology(60, 900, 5, hubs=4.0)
    sampler = KINDS[kind](Setup(topology, (3, 4), np.empty(0, np.int64), 0))
    drawing = DeviceSampler(sampler, DeviceTopology(topology, CPU))
    key = DrawKey(TRAIN, 3, 1, 0)
    for roots in (np.arange(20), np.empty(0, np.int64)):
        same_blocks(drawing.sample(key, roots), sampler.sample(key, roots))


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
