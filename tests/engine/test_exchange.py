"""Which layers an exchange mode may feed, and when rows are read in place: decided from what a layer says of itself."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from leapmpi.config.sections import ModelConfig
from leapmpi.dataset.topology import Topology
from leapmpi.engine.exchange.modes.partial import Partial
from leapmpi.engine.exchange.partial_block import PartialBlockBuilder
from leapmpi.engine.exchange.selection import serving_modes
from leapmpi.engine.placement import Placement
from leapmpi.nn.layer import Layer
from leapmpi.nn.model import build_model
from leapmpi.nn.models.sage import SAGELayer
from leapmpi.strategies.naive import Naive
from leapmpi.strategies.pull import Pull

ROWS = 100_000


def layer_of(aggregate, in_dim=600, out_dim=128):
    return build_model(ModelConfig(aggregate=aggregate, hidden=out_dim, dropout=0.0), 2, in_dim, 3, seed=0).layers[0]


@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_few_edges_into_many_rows_do_not_have_all_rows_projected(aggregate):
    topology = Topology(np.zeros(ROWS + 1, np.int64), np.empty(0, np.int32), np.arange(ROWS))
    builder = PartialBlockBuilder(topology, 0, ROWS, torch.device("cpu"))
    inputs = SimpleNamespace(whole=True, scatters=False)
    layer = layer_of(aggregate)
    in_place = builder.suit_in_place(layer, inputs, edges=1000, destinations=100)
    # Where sums come before products, rows that no edge names cost nothing.
    assert in_place == (aggregate == "mean")
    assert builder.suit_in_place(layer, inputs, edges=100 * ROWS, destinations=ROWS)


class Squares(Layer):
    """A layer of a user's own that says only what it must."""

    linear = False


class NotLinear(SAGELayer):
    """A sub-class that aggregates otherwise and inherits the form of sums."""

    linear = False


@pytest.mark.parametrize("kind", [Squares, NotLinear])
def test_a_layer_whose_sums_cannot_be_taken_apart_is_fed_by_rows(kind):
    layer = kind(ModelConfig(), 1, 5, 4, False)
    assert Partial.refusal(layer)
    assert serving_modes(layer) == ["raw", "projected"]


def test_equal_bytes_are_decided_in_this_order():
    assert serving_modes(layer_of("mean")) == ["partial", "raw", "projected"]
    assert serving_modes(layer_of("max")) == ["raw", "projected", "partial"]


def test_a_sub_class_does_not_share_the_sums_of_its_base(monkeypatch):
    summed = []
    block = SimpleNamespace(sums={})
    for kind in (SAGELayer, NotLinear):
        layer = kind(ModelConfig(dropout=0.0), 1, 5, 4, False)
        monkeypatch.setattr(layer, "aggregate", lambda block, rows, key, kind=kind: summed.append(kind))
        for _ in range(2):
            layer._sums(block, torch.zeros(2, 5), None)
    assert summed == [SAGELayer, NotLinear, NotLinear]


def test_labels_are_local_only_where_a_rank_labels_its_own_roots():
    class Elsewhere(Pull):
        def labelled(self, minibatch):
            return []

    assert Placement.trains_labelled
    assert Pull.trains_labelled
    assert not Naive.trains_labelled
    assert not Elsewhere.trains_labelled
