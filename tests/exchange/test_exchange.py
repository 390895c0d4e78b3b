"""Which layers an exchange mode may feed, and when rows are read in place: decided from what a layer says of itself."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from leapmpi.config.schema import Config
from leapmpi.config.sections import ModelConfig, StrategyConfig
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import Topology, load_topology
from leapmpi.engine.placement import labelled_rank, placement_of, trains_labelled
from leapmpi.exchange.minibatch import MicroBatch
from leapmpi.exchange.modes.partial import Partial
from leapmpi.exchange.partial_block import PartialBlockBuilder
from leapmpi.exchange.selection import exchange_mode, mode_class, serving_modes
from leapmpi.forecast.simulator import Forecaster
from leapmpi.nn.layer import Layer
from leapmpi.nn.model import build_model
from leapmpi.nn.models.sage import SAGELayer
from leapmpi.nn.tensors import BlockTensors, Edges
from leapmpi.sampling.block import DrawnBlock
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support.graphs import random_graph
from tests.support.typed_models import schema

ROWS = 100_000


def layer_of(aggregate, in_dim=600, out_dim=128):
    return build_model(
        ModelConfig(options=(f"aggregate={aggregate}",), hidden=out_dim, dropout=0.0), 2, in_dim, 3, seed=0
    ).layers[0]


@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_few_edges_into_many_rows_do_not_have_all_rows_projected(aggregate):
    topology = Topology(np.zeros(ROWS + 1, np.int64), np.empty(0, np.int32), np.arange(ROWS))
    builder = PartialBlockBuilder(topology, 0, ROWS, torch.device("cpu"))
    inputs = SimpleNamespace(in_place=True, scatters=False)
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
    assert serving_modes(layer_of("mean")) == ["partial", "mixed", "raw", "projected", "sums"]
    assert serving_modes(layer_of("max")) == ["raw", "projected", "partial"]


def features(**of_rows):
    return SimpleNamespace(**{"sparse": False, "returned_row_bytes": 0} | of_rows)


def test_sums_of_raw_rows_serve_dense_rows_that_do_not_learn():
    layer = layer_of("mean")
    assert "sums" in serving_modes(layer, features())
    assert "sums" not in serving_modes(layer, features(sparse=True))
    assert "sums" not in serving_modes(layer, features(returned_row_bytes=48))


def test_sums_of_raw_rows_serve_a_residual_only_where_nothing_is_dropped():
    for dropped in (0.0, 0.5):
        config = ModelConfig(residual=True, input_dropout=dropped)
        layer = build_model(config, 2, 12, 3, seed=0).layers[0]
        assert ("sums" in serving_modes(layer)) == (not dropped)


def test_a_sub_class_does_not_share_the_sums_of_its_base(monkeypatch):
    summed = []
    monkeypatch.setattr("leapmpi.nn.layer.projects_first", lambda layer, block, x: False)
    edges = Edges(torch.zeros(3, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 2)
    block = BlockTensors(0, 2, edges, torch.arange(2), torch.arange(2), None, sums={})
    for kind in (SAGELayer, NotLinear):
        layer = kind(ModelConfig(dropout=0.0), 1, 5, 4, False)
        monkeypatch.setattr(layer, "aggregate", lambda block, rows, key, kind=kind: summed.append(kind) or rows)
        for _ in range(2):
            layer(block, torch.zeros(2, 5))
    assert summed == [SAGELayer, NotLinear, NotLinear]


@pytest.mark.parametrize(("name", "own"), [("pull", True), ("leap", True), ("p3", True), ("naive", False)])
def test_labels_are_local_only_where_a_rank_labels_its_own_roots(name, own):
    ctx = SimpleNamespace(rank=0, ranks=3, rank_offsets=np.arange(4), seed=0)
    placement = placement_of(ctx, StrategyConfig(name=name))
    assert trains_labelled(placement) == own
    assert labelled_rank(placement) == (0 if own else 2)


OFFERED = {"gat": False, "gatv2": False, "film": True, "sage": True, "hgt": False, "simple-hgn": False, "rsage": True}


@pytest.mark.parametrize("name", OFFERED)
def test_auto_leaves_shares_of_attention_to_those_who_name_the_mode(name):
    of_types = schema(2) if name in ("hgt", "simple-hgn", "rsage") else None
    layer = build_model(ModelConfig(name=name, hidden=8), 2, 8, 3, seed=0, schema=of_types).layers[0]
    assert "partial" in serving_modes(layer)
    assert mode_class("partial").offered_to_auto(layer) == OFFERED[name]


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_film_sends_partial_sums_only_where_destinations_have_many_neighbours_on_a_rank(aggregate, tmp_path):
    chosen = {}
    for degree, roots in ((80, 6), (3, 60)):
        graph, folder = random_graph(n=240, degree=degree), tmp_path / str(degree)
        write_dataset(folder, graph, np.arange(240) % 2, 2, method="test", figures={}, seed=0)
        config = Config.from_values(
            {"data": str(folder), "model.name": "film", "model.options.aggregate": aggregate, "model.hidden": 2,
             "sampling.fanout": "all", "train.batch_size": roots, "strategy.name": "pull"}
        )  # fmt: skip
        dataset = open_dataset(folder)
        forecaster = Forecaster(dataset, load_topology(dataset))
        job = forecaster.job(config, 2)
        engines, minibatches = job.engines, job.draw(job.on_first(dataset.splits.train[:roots]), 0)
        found = fetch_bytes(job, minibatches)
        forecaster.choose_mode(job, config, minibatches, job.on_first(dataset.splits.train[:roots]))
        chosen[degree] = engines[0].mode_name
        assert chosen[degree] == min(found, key=found.get), found
    assert chosen[80] == "partial" != chosen[3]


def fetch_bytes(job, minibatches):
    """By mode, the bytes that feed the first layer on all ranks; no mode is counted for less by itself."""
    found = {}
    for name in serving_modes(job.engines[0].ctx.model.layers[0]):
        modes = [exchange_mode(name, engine.ctx) for engine in job.engines]
        counted = sum(mode.predicted_bytes(minibatch) for mode, minibatch in zip(modes, minibatches, strict=True))
        job.world.take()
        job.world.run(lambda rank, modes=modes: count_mode(modes[rank], minibatches[rank]))
        found[name] = sum(size for kind, size in job.world.take().bytes_by_kind().items() if kind != "control")
        assert counted >= found[name]
    return found


def count_mode(mode, minibatch):
    mode.request(minibatch)
    minibatch.begin()
    mode.count(minibatch, 0)
    minibatch.feeds, minibatch.row_exchange = [], None


@pytest.mark.parametrize(
    ("name", "numbered"), [("partial", False), ("sums", False), ("raw", True), ("projected", True)]
)
def test_last_sources_are_numbered_only_for_a_mode_that_reads_their_numbers(name, numbered, small_data):
    config = Config.from_values({"data": str(small_data), "model.dropout": 0.0, "sampling.fanout": "3,2"})
    dataset = open_dataset(small_data)
    engine = Forecaster(dataset, load_topology(dataset)).job(config, 2).engines[0]
    roots, key = dataset.splits.train[:9], DrawKey(TRAIN, 0, 0, 0)
    for counts_sources in (True, False):
        mode = exchange_mode(name, replace(engine.ctx, counts_sources=counts_sources))
        blocks = mode.sample(key, roots)
        assert isinstance(blocks[-1], DrawnBlock) == (not numbered and not counts_sources)
        assert len(mode.tensors(MicroBatch(roots, blocks, None))) == len(blocks) - (not numbered)
