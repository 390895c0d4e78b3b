"""Rows in several places of memory: products and sums equal those of a matrix of the same rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.assembly.stored_dtype import decoded
from leapmpi.dataset.hdf5.names import FEATURE_DTYPES
from leapmpi.nn.aggregate import maximum, total, weighted_sum
from leapmpi.nn.gemm import product, sum_of_outer
from leapmpi.nn.kernels.row_types import NO_SCALE, row_type
from leapmpi.nn.rows import LEAST_WIDTH, ScatteredRows, dense
from leapmpi.nn.tensors import Edges
from leapmpi.system.worker_threads import set_threads

pytestmark = pytest.mark.compiles


def scattered(rows, width, seed=0):
    """Rows drawn from two matrices in turn, the second of which begins at an odd byte; and a matrix of them."""
    rng = np.random.default_rng(seed)
    first, memory = rng.standard_normal((7, width)).astype(np.float32), np.empty(5 * width * 4 + 3, np.uint8)
    second = memory[3:].view(np.float32).reshape(5, width)
    second[...] = rng.standard_normal((5, width))
    addresses, copies = np.empty(rows, np.int64), np.empty((rows, width), np.float32)
    for row in range(rows):
        source = (first, second)[row % 2]
        number = rng.integers(len(source))
        addresses[row], copies[row] = source.ctypes.data + number * source.strides[0], source[number]
    return ScatteredRows(torch.from_numpy(addresses), width, (first, memory)), torch.from_numpy(copies)


def in_fewer_bytes(name, rows, width):
    """Rows of a type in fewer bytes, beginning at an odd byte; and a matrix of what they stand for."""
    dtype = np.dtype(FEATURE_DTYPES[name])
    exact = np.random.default_rng(1).standard_normal((9, width)).astype(np.float32)
    scale = np.stack([np.ptp(exact, axis=0) / 254, (exact.min(0) + exact.max(0)) / 2]) if name == "int8" else None
    stored = np.frombuffer(bytearray(9 * width * dtype.itemsize + 3), np.uint8)[3:].view(dtype).reshape(9, width)
    if name == "int8":
        stored[...] = np.rint((exact - scale[1]) / scale[0])
    else:
        stored[...] = exact.view(np.uint32) >> 16 if name == "bfloat16" else exact
    numbers = np.random.default_rng(2).integers(0, 9, rows)
    addresses = torch.from_numpy(stored.ctypes.data + stored.strides[0] * numbers)
    kind = row_type(dtype, scale)
    x = ScatteredRows(addresses, width, (stored,), kind, NO_SCALE if scale is None else scale)
    return x, torch.from_numpy(decoded(stored, scale)[numbers])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize(("rows", "width"), [(5, 17), (40, 300)])
def test_rows_in_fewer_bytes_are_converted_as_they_are_read(name, rows, width):
    x, copies = in_fewer_bytes(name, rows, width)
    assert torch.equal(x.dense(), copies)

    # Products and gradients to the bit, of all rows and of chosen ones.
    for selected in (None, torch.randint(rows, (2 * rows + 1,))):
        results = []
        for each in (x, copies):
            weight = torch.linspace(-1, 1, 33 * width).reshape(33, width).requires_grad_()
            product(each, weight, selected).square().sum().backward()
            results.append(weight.grad)
        assert torch.equal(*results)

    # Sums; those of int8 add steps first.
    indptr = torch.tensor([0, 0, 3, rows])
    edges = Edges(indptr, torch.randint(rows, (rows,), dtype=torch.int32), rows)
    weight = torch.randn(rows)
    found, expected = weighted_sum(edges, x, weight), weighted_sum(edges, copies, weight)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


SIZES = [(1, LEAST_WIDTH), (5, 17), (6, 64), (23, 65), (40, 300)]


@pytest.mark.parametrize(("rows", "width"), SIZES)
def test_a_copy_holds_the_rows(rows, width):
    x, copies = scattered(rows, width)
    assert x.shape == copies.shape
    assert torch.equal(x.dense(), copies)
    assert torch.equal(dense(x.to(torch.float64)), copies.double())
    assert x.to(torch.float32) is x


@pytest.mark.parametrize("rows", [slice(2, 9), slice(0, 0), np.array([3, 3, 0])], ids=["slice", "none", "numbers"])
def test_rows_are_taken_by_slices_and_numbers(rows):
    x, copies = scattered(12, 20)
    assert torch.equal(x[rows].dense(), copies[rows])
    if not isinstance(rows, slice):
        assert torch.equal(x[torch.from_numpy(rows)].dense(), copies[rows])


@pytest.mark.parametrize("out", [1, 16, 33])
@pytest.mark.parametrize(("rows", "width"), SIZES)
def test_products_and_their_gradients_are_those_of_a_copy(rows, width, out):
    x, copies = scattered(rows, width)
    numbers = torch.randint(rows, (2 * rows + 1,))
    for selected in (None, numbers):
        results = []
        for each in (x, copies):
            weight = torch.linspace(-1, 1, out * width).reshape(out, width).requires_grad_()
            product(each, weight, selected).square().sum().backward()
            results.append(weight.grad)
        assert torch.equal(*results)
    g = torch.randn(rows, out)
    assert torch.equal(sum_of_outer(g, x), sum_of_outer(g, copies))


def test_no_rows_at_all():
    x, _ = scattered(4, 20)
    weight = torch.ones(3, 20, requires_grad=True)
    product(x[:0], weight).sum().backward()
    assert product(x[:0], weight).shape == (0, 3)
    assert not weight.grad.any()


@given(counts=st.lists(st.integers(0, 6), min_size=1, max_size=20), width=st.sampled_from([16, 31, 64, 80, 300]))
@settings(max_examples=40, deadline=None)
def test_weighted_sums_are_those_of_a_copy(counts, width):
    x, copies = scattered(9, width)
    indptr = torch.tensor([0, *np.cumsum(counts)])
    edges = Edges(indptr, torch.randint(9, (sum(counts),), dtype=torch.int32), 9)
    weight = torch.randn(sum(counts))
    torch.testing.assert_close(
        weighted_sum(edges, x, weight), weighted_sum(edges, copies, weight), rtol=1e-6, atol=1e-6
    )


def test_operations_that_cannot_read_them_in_place_read_a_copy(sampled, random_graph):
    (block,), src = sampled(random_graph(), (3,), range(9))
    x, copies = scattered(len(src), 24)
    assert torch.equal(maximum(block.edges, x), maximum(block.edges, copies))
    torch.testing.assert_close(total(block, x), total(block, copies))
    heads = torch.randn(len(block.edges.indices), 2)
    assert torch.equal(weighted_sum(block.edges, x, heads), weighted_sum(block.edges, copies, heads))


@pytest.mark.parametrize("weight", [torch.ones(4, dtype=torch.float64), torch.ones(3)], ids=["type", "number"])
def test_weights_that_do_not_fit_are_refused(weight):
    x, _ = scattered(4, 20)
    with pytest.raises(ValueError, match="cannot weigh 4 edges"):
        weighted_sum(Edges(torch.tensor([0, 4]), torch.arange(4), 4), x, weight)


def test_threads_do_not_change_bits():
    x, _ = scattered(50, 70)
    edges = Edges(torch.arange(0, 101, 2), torch.randint(50, (100,), dtype=torch.int32), 50)
    weight, found = torch.randn(100), []
    for threads in (1, 2):
        set_threads(threads)
        found.append(weighted_sum(edges, x, weight))
    set_threads(1)
    assert torch.equal(*found)
