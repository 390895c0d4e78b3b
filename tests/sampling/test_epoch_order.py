"""The epoch's order: a uniform permutation that knows original ids only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.errors import ConfigError
from leapmpi.sampling.epoch_order import batches, epoch_order, shuffled

pytestmark = pytest.mark.compiles


@settings(derandomize=True)
@given(st.integers(0, 200), st.integers(0, 2**63 - 1), st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_order_is_a_permutation_that_does_not_depend_on_the_partition(size, seed, epoch, shuffle):
    rng = np.random.default_rng(shuffle)
    original = np.sort(rng.choice(1000, size, replace=False))
    renumbered = rng.choice(1000, size, replace=False)  # as another partition would number them
    name = dict(zip(renumbered.tolist(), original.tolist(), strict=True))
    listed = rng.permutation(size)
    plain = epoch_order(original, original, seed, epoch)
    other = epoch_order(renumbered[listed], original[listed], seed, epoch)
    assert sorted(plain.tolist()) == original.tolist()
    assert [name[v] for v in other.tolist()] == plain.tolist()


def test_order_differs_by_epoch_and_seed():
    ids = np.arange(100)
    orders = {tuple(epoch_order(ids, ids, seed, epoch).tolist()) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_all_orders_are_equally_likely():
    ids = np.array([5, 8, 13])
    orders = [tuple(epoch_order(ids, ids, 0, epoch).tolist()) for epoch in range(3000)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 6
    assert ((counts - 500) ** 2 / 500).sum() < 20.5  # chi-square, 5 degrees of freedom, p = 0.001


def test_order_refuses_unusable_input():
    with pytest.raises(ConfigError, match="seed"):
        epoch_order(np.arange(3), np.arange(3), -1, 0)
    with pytest.raises(ValueError, match="3 training vertices"):
        epoch_order(np.arange(3), np.arange(4), 0, 0)


@settings(derandomize=True)
@given(st.integers(0, 100), st.integers(1, 120))
def test_batches_cover_the_order(size, batch_size):
    order = np.arange(size)[::-1]
    cut = batches(order, batch_size)
    assert np.concatenate([*cut, order[:0]]).tolist() == order.tolist()
    assert all(len(batch) == batch_size for batch in cut[:-1])
    assert all(1 <= len(batch) <= batch_size for batch in cut)


@pytest.mark.parametrize("batch_size", [0, -4])
def test_batch_size_must_be_positive(batch_size):
    with pytest.raises(ConfigError, match="at least 1"):
        batches(np.arange(3), batch_size)


def test_batches_are_shuffled_but_for_the_last():
    cut = batches(np.arange(23), 5)
    orders = [[batch.tolist() for batch in shuffled(cut, 7, epoch)] for epoch in range(20)]
    for order in orders:
        assert sorted(order[:-1]) == [batch.tolist() for batch in cut[:-1]]
        assert order[-1] == [20, 21, 22]
    assert len({str(order) for order in orders}) > 10
    assert [len(shuffled(cut[:count], 7, 1)) for count in (0, 1)] == [0, 1]
