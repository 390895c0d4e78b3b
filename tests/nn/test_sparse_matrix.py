"""Sparse input rows against the same rows as a dense matrix: products, gradients, dropout and whole models."""

import numpy as np
import pytest
import torch

from leapmpi.nn.dropout import drop_features
from leapmpi.nn.gemm import product
from leapmpi.nn.model import build_model
from leapmpi.nn.rows import SparseMatrix
from leapmpi.nn.tensors import Edges
from tests.nn.conftest import KEY

pytestmark = pytest.mark.compiles


def both(rows, width, dtype=torch.float64, share=0.2):
    """Random rows, sparse and dense, one of them empty."""
    rng = np.random.default_rng(rows)
    dense = rng.standard_normal((rows, width)) * (rng.random((rows, width)) < share)
    dense[rows // 2] = 0
    row, column = np.nonzero(dense)
    indptr = torch.from_numpy(np.searchsorted(row, np.arange(rows + 1)))
    entries = Edges(indptr, torch.from_numpy(column.astype(np.int32)), width)
    return SparseMatrix(entries, torch.from_numpy(dense[row, column]).to(dtype)), torch.from_numpy(dense).to(dtype)


def test_rows_are_those_of_the_dense_matrix():
    sparse, dense = both(30, 21)
    numbers = torch.tensor([5, 5, 15, 0, 29])
    for actual, expected in (
        (sparse, dense), (sparse[4:9], dense[4:9]), (sparse[:0], dense[:0]),
        (sparse[numbers], dense[numbers]), (sparse[numbers.numpy()], dense[numbers]),
        (sparse.to(torch.float32), dense.float()),
    ):  # fmt: skip
        assert actual.shape == tuple(expected.shape)
        assert torch.equal(actual.dense(), expected)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("rows", [30, 1])
def test_products_and_their_gradients(either_operations, rows, dtype, near):
    sparse, dense = both(rows, 21, dtype)
    weights = [torch.randn(4, 21, dtype=dtype).requires_grad_() for _ in range(2)]
    weights[1].data.copy_(weights[0].data)
    actual = product(sparse, weights[0])
    expected = product(dense, weights[1])
    upstream = torch.randn_like(actual)
    actual.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(actual, expected, rtol=near, atol=near)
    torch.testing.assert_close(weights[0].grad, weights[1].grad, rtol=near, atol=near)


@pytest.mark.parametrize("first", [0, 3, 6])
def test_dropout_keeps_the_entries_that_it_keeps_of_the_dense_rows(first, monkeypatch):
    sparse, dense = both(30, 21)
    vertices = torch.arange(30) * 7
    expected = drop_features(dense, vertices, KEY, 1, 0.3, first)
    dropped = drop_features(sparse, vertices, KEY, 1, 0.3, first)
    assert torch.equal(dropped.dense(), expected)
    assert not torch.equal(expected, dense)
    from leapmpi.nn import dropout

    monkeypatch.setattr(dropout, "mask_entries", dropout.mask_entries_tensor)
    assert torch.equal(drop_features(sparse, vertices, KEY, 1, 0.3, first).values, dropped.values)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
def test_models_learn_the_same(random_graph, sampled, model_config, name, residual):
    topology = random_graph()
    blocks, src = sampled(topology, (3, 2), [1, 5, 9])
    sparse, dense = both(len(src), 8)
    config = model_config(name, input_dropout=0.3, residual=residual)
    gradients = []
    for x in (sparse, dense):
        # As wide as the hidden layer, so that a residual adds the rows themselves.
        model = build_model(config, 2, 8, 3, 0, torch.float64)
        model(blocks, x, KEY).square().sum().backward()
        gradients.append([each.grad for each in model.parameters()])
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
