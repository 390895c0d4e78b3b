"""Masks are functions of key, layer, vertex and column alone."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from leapmpi.nn.dropout import (
    DropoutKey,
    drop_attention,
    drop_features,
    fold_tensor,
    mask_edges,
    mask_edges_tensor,
    mask_vertices,
    mask_vertices_tensor,
    threshold,
)
from leapmpi.nn.tensors import Edges
from leapmpi.system.counter_rng import fold_all

pytestmark = pytest.mark.compiles

KEY = DropoutKey(1, 3, 0, 9)
VERTICES = torch.tensor([5, 0, 2**40, 17, 3, 99])
EDGES = Edges(torch.tensor([0, 2, 2, 5]), torch.tensor([1, 4, 0, 2, 5], dtype=torch.int32), 6)


def ones(rows, width):
    return torch.ones(rows, width, dtype=torch.float64)


def test_hashes_in_torch_equal_the_compiled_ones():
    words = np.random.default_rng(0).integers(0, 2**63 - 1, 1000)
    for base in (0, 1, 2**63 + 12345, 2**64 - 1):
        signed = base - 2**64 if base >= 2**63 else base
        hashes = fold_tensor(signed, torch.from_numpy(words)).numpy().view(np.uint64)
        assert np.array_equal(hashes, fold_all(np.uint64(base), words))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("first", [0, 1, 3, 6])
@pytest.mark.parametrize("width", [0, 1, 4, 5, 130])
def test_masks_in_torch_equal_the_compiled_ones_bit_for_bit(dtype, first, width):
    x = torch.randn(6, width, dtype=dtype)
    for base in (7, 2**64 - 5):
        for below in (1, threshold(0.3), 2**16 - 1, 2**16):
            arguments = (VERTICES, base, below, first)
            assert torch.equal(mask_vertices(x, *arguments), mask_vertices_tensor(x, *arguments))
            arguments = (EDGES, VERTICES, base, below)
            assert torch.equal(mask_edges(x[:5], *arguments), mask_edges_tensor(x[:5], *arguments))


def test_a_row_s_mask_does_not_depend_on_the_other_rows():
    x = torch.randn(6, 9)
    whole = drop_features(x, VERTICES, KEY, 2, 0.5)
    order = torch.tensor([3, 0, 5])
    assert torch.equal(drop_features(x[order], VERTICES[order], KEY, 2, 0.5), whole[order])


def test_masks_of_column_shards_are_those_of_whole_rows():
    x = torch.randn(6, 11)
    whole = drop_features(x, VERTICES, KEY, 1, 0.4)
    shards = [drop_features(x[:, a:b], VERTICES, KEY, 1, 0.4, first_column=a) for a, b in ((0, 3), (3, 9), (9, 11))]
    assert torch.equal(torch.cat(shards, 1), whole)


def test_masks_differ_with_each_field_of_the_key_layer_and_vertex():
    x, vertices = ones(50, 8), torch.arange(50)
    masks = [drop_features(x, vertices, KEY, 1, 0.5), drop_features(x, vertices, KEY, 2, 0.5)]
    masks += [drop_features(x, vertices, KEY._replace(**{f: 8}), 1, 0.5) for f in KEY._fields]
    masks += [drop_features(x, vertices + 50, KEY, 1, 0.5)]
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert 0.35 < (a == b).double().mean() < 0.65


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_keep_rate_and_mean(rate):
    dropped = drop_features(ones(2000, 64), torch.arange(2000), KEY, 1, rate)
    kept = dropped > 0
    deviation = 5 * math.sqrt(rate * (1 - rate) / kept.numel())
    assert abs(kept.double().mean() - (1 - rate)) < deviation
    assert dropped[kept].unique().tolist() == [pytest.approx(1 / (1 - rate), rel=2e-4)]
    assert (kept.double().mean(0) - (1 - rate)).abs().max() < 5 * math.sqrt(rate * (1 - rate) / 2000)
    assert abs(np.corrcoef(kept.numpy().T.astype(float)) - np.eye(64)).max() < 0.13


def test_attention_masks_depend_on_both_ends_and_head():
    share = ones(5, 8)
    whole = drop_attention(share, EDGES, VERTICES, KEY, 1, 0.5)
    alone = Edges(torch.tensor([0, 2]), torch.tensor([1, 2], dtype=torch.int32), 3)
    names = torch.stack([VERTICES[0], VERTICES[1], VERTICES[4]])
    assert torch.equal(drop_attention(share[:2], alone, names, KEY, 1, 0.5), whole[:2])
    assert len(whole.unique(dim=0)) == 5
    turned = torch.stack([VERTICES[1], VERTICES[0]])
    forth = Edges(torch.tensor([0, 1]), torch.tensor([1], dtype=torch.int32), 2)
    back = drop_attention(ones(1, 64), forth, turned, KEY, 1, 0.5)
    assert not torch.equal(back, drop_attention(ones(1, 64), forth, turned.flip(0), KEY, 1, 0.5))


def test_gradient_passes_the_same_mask():
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: drop_features(x, VERTICES, KEY, 1, 0.5), x)
    assert gradcheck(lambda x: drop_attention(x, EDGES, VERTICES, KEY, 1, 0.5), x[:5].detach().requires_grad_())


def test_evaluation_and_rate_zero_leave_the_input_alone():
    x = torch.randn(6, 5)
    assert drop_features(x, VERTICES, None, 1, 0.5) is x
    assert drop_features(x, VERTICES, KEY, 1, 0.0) is x
    assert drop_attention(x[:5], EDGES, VERTICES, None, 1, 0.5).shape == (5, 5)
