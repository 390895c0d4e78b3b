"""What `--strategy auto` chooses, by counts and rates alone."""

import json
from dataclasses import replace

import numpy as np
import pytest

from leapmpi import Config
from leapmpi.config.plain_values import parsed
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.exchange.selection import MODES
from leapmpi.forecast import strategy_choice
from leapmpi.forecast.simulator import Forecaster
from leapmpi.forecast.strategy_choice import choose, edges_of
from leapmpi.plan.chosen_strategy import Choice, EpochCost
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.runs.schemas import STRATEGY_CHOICE
from tests.support.graphs import random_graph
from tests.support.typed_models import whole_graph

SLOW = MachineRates(byte=1e-6)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """240 vertices in four parts of few neighbours in common, by the width of their features."""
    folder, graph = tmp_path_factory.mktemp("choice"), random_graph(240, degree=12)
    for width in (0, 8, 3000):
        features = np.random.default_rng(0).standard_normal((240, width)).astype(np.float32) if width else None
        write_dataset(
            folder / str(width), replace(graph, features=features), np.arange(240, dtype=np.int32) % 4, 4,
            method="hash", figures={}, seed=0,
        )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def chosen(data):
    """A function from a width, the rates of the machine and settings to the choice for four ranks."""

    def choose_for(width, machine=SLOW, ranks=4, **values):
        dataset = open_dataset(data / str(width))
        config = Config.from_values({"data": "", "model.hidden": 4, "train.batch_size": 32, **values})
        return choose(config, dataset, load_topology(dataset), ranks, machine)

    return choose_for


def test_wide_features_of_scattered_neighbours_stay_where_their_columns_are(chosen):
    wide, narrow = chosen(3000), chosen(8)
    assert (wide.strategy, narrow.strategy) == ("p3", "leap")
    assert wide.forecasts["p3"].bytes < wide.forecasts["leap"].bytes / 2
    assert wide.forecasts["p3"].seconds < wide.forecasts["leap"].seconds < 1.5 * wide.forecasts["pull"].seconds
    for choice in (wide, narrow):
        assert choice.sentence().startswith(f"strategy auto: {choice.strategy}, predicted ")
        assert all(name in choice.sentence() for name in ("leap", "pull", "p3"))
        assert Choice.from_values(choice.to_values()) == choice


def test_a_gain_below_a_tenth_leaves_leap_in_place(chosen):
    # Where links cost nothing all strategies compute about the same.
    assert chosen(8, MachineRates(byte=1e-18, collective=1e-18)).strategy == "leap"


def test_bytes_are_those_that_plan_predicts(chosen, data):
    choice, dataset = chosen(8), open_dataset(data / "8")
    forecaster = Forecaster(dataset, load_topology(dataset), iterations=3)
    for name, found in choice.forecasts.items():
        values = {"strategy.name": name, "strategy.remote": found.remote if found.remote in MODES.names() else "auto"}
        config = Config.from_values({"data": "", "model.hidden": 4, "train.batch_size": 32, **values})
        forecast = forecaster.forecast(name, config, 4)
        # A short last batch has as many messages as a whole one, which the choice counts by its roots.
        assert found.bytes == pytest.approx(sum(forecast.epoch_sent.values()), rel=0.12)


def test_no_more_iterations_are_counted_than_requested(data):
    dataset = open_dataset(data / "8")
    topology = load_topology(dataset)
    config = Config.from_values({"data": "", "model.hidden": 4, "train.batch_size": 32})
    for iterations, counted in ((1, 1), (8, 3)):
        forecaster = Forecaster(dataset, topology, iterations=iterations)
        found = choose(config, dataset, topology, 2, MachineRates(), forecaster=forecaster)
        assert found.iterations == counted


def test_strategies_of_typed_graphs_are_compared_by_their_counts(tmp_path):
    graph = whole_graph()
    write_dataset(tmp_path, graph, np.arange(graph.vertices) % 4, 4, method="test", figures={}, seed=0)
    dataset = open_dataset(tmp_path, typed=True)
    values = {"data": "", "model.name": "rgcn", "model.hidden": 4, "train.batch_size": 20, "sampling.fanout": "3,2"}
    choice = choose(Config.from_values(values), dataset, load_topology(dataset), 4, SLOW)
    assert set(choice.forecasts) == {"leap", "pull", "owner"}
    assert "not p3: it does not train typed graphs" in choice.sentence()
    # Another than the default promises less than 0.9 of its seconds.
    least = min(each.seconds for each in choice.forecasts.values())
    assert choice.forecasts[choice.strategy].seconds <= least / 0.9


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"strategy.time_steps": "2"}, "--time-steps is a setting of leap"),
        ({"strategy.memory_limit": "1G"}, "--memory-limit is a setting of leap"),
        ({"strategy.time_steps": "measured"}, "--time-steps is a setting of leap"),
        ({"strategy.vary": ("train.lr=1,2",)}, "models that differ"),
        ({"sampling.sampler": "mine.py:Mine"}, "a sampler of your own"),
    ],
)
def test_settings_that_leap_alone_reads_leave_no_choice(values, why, chosen):
    choice = chosen(3000, **values)
    assert (choice.strategy, choice.forecasts) == ("leap", {})
    assert why in choice.sentence()


def test_full_batches_are_computed_layer_by_layer_unless_another_is_clearly_faster(chosen, data):
    full = {"train.batch_size": len(open_dataset(data / "8").splits.train), "sampling.fanout": (-1, -1)}
    choice = chosen(8, **full)
    assert set(choice.forecasts) == {"hybrid", "depcomm", "depcache", "leap", "pull"}
    assert choice.forecasts[choice.strategy].seconds <= 1.1 * min(each.seconds for each in choice.forecasts.values())
    # Rows are fetched once, or in every iteration.
    assert choice.forecasts["hybrid"].bytes < choice.forecasts["leap"].bytes
    assert chosen(8, ranks=1, **full).strategy == "hybrid"
    assert "hybrid" not in chosen(8, **full | {"sampling.fanout": (-1, 5)}).forecasts
    assert chosen(8, **full, **{"strategy.time_steps": "measured"}).strategy == "leap"
    limited = chosen(8, **full, **{"strategy.memory_limit": "1G"})
    assert set(choice.forecasts) - set(limited.forecasts) == {"pull"}


def test_one_rank_has_no_choice(chosen):
    assert chosen(3000, ranks=1).why == "there is one rank"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"strategy.cache": 0.1}, "--cache acts on raw rows"),
        ({"strategy.remote": "raw"}, "its own way to compute the first layer"),
        ({"model.residual": True}, "p3 cannot train this model"),
    ],
)
def test_a_strategy_that_cannot_serve_is_left_out_with_the_reason(values, why, chosen):
    choice = chosen(3000, **values)
    assert {"leap", "pull"} <= set(choice.forecasts) <= {"leap", "pull", "owner"}
    assert why in choice.left_out["p3"]
    assert f"not p3: {choice.left_out['p3']}" in choice.sentence()


def test_large_iterations_are_not_counted(chosen, monkeypatch):
    for most, iterations in ((3000, (1, 2)), (500, (0,))):
        monkeypatch.setattr(strategy_choice, "MOST_EDGES", most)
        choice = chosen(8, **{"sampling.fanout": (-1, -1)})
        assert choice.iterations in iterations
    assert "takes long to count" in choice.why


def test_a_deep_iteration_draws_once_for_each_vertex_and_hop_on_a_rank(data):
    dataset = open_dataset(data / "8")
    config = Config.from_values({"data": "", "sampling.fanout": (2,) * 10})
    job = Forecaster(dataset, load_topology(dataset)).job(config, 1)
    drawn = edges_of(job.engines[0].ctx.sampler, dataset.splits.train, job.key(0), 1)
    assert 240 * 10 < drawn < 240 * 2 * 10


def test_rows_that_are_learned_rule_p3_out(chosen):
    choice = chosen(0, **{"model.missing_features": "learned:3000"})
    assert (choice.strategy, choice.left_out) == ("leap", {"p3": "it does not learn rows"})


def test_rows_that_p3_would_have_to_read_in_full_rule_it_out(chosen, monkeypatch):
    monkeypatch.setattr(strategy_choice, "_MOST_READ", 1000)
    assert "prepare --layout columns" in chosen(3000).left_out["p3"]


def test_a_record_of_another_kind_is_refused():
    record = Choice("p3", forecasts={"p3": EpochCost(1.0, 2.0, "raw")}).to_values()
    parsed(json.dumps(record), STRATEGY_CHOICE)
    for values in ({"strategy": 3}, {"forecasts": {"p3": {"seconds": "x"}}}, {"left_out": {"p3": 1}}):
        with pytest.raises(ValueError, match=next(iter(values))):
            parsed(json.dumps(record | values), STRATEGY_CHOICE)
