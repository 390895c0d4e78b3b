"""Forecasts: laws that hold between strategies. What real runs count is in tests/parallel/test_forecasts.py."""

import json

import numpy as np
import pytest
import torch

from leapmpi import Config, train
from leapmpi.cli.main import main
from leapmpi.comm.world import library_name, load_mpi
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.errors import ConfigError, DataError
from leapmpi.forecast.simulator import Forecaster
from leapmpi.nn.model import build_model
from leapmpi.plan.machine_rates import MachineRates, keep_rates, machine_key, processor_name
from leapmpi.runs.text_tables import forecast_table
from leapmpi.sampling.epoch_order import batches
from leapmpi.tools.forecast import compare, parse_ranks, plan
from tests.support.graphs import random_graph


@pytest.fixture(scope="module")
def forecaster(small_data):
    dataset = open_dataset(small_data)
    return Forecaster(dataset, load_topology(dataset))


def config(data, **values):
    return Config.from_values({"data": str(data), "model.hidden": 16, "train.batch_size": 40, **values})


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pre_gathered_rows_do_not_depend_on_time_steps_and_are_never_more_than_step_by_step(
    ranks, small_data, forecaster
):
    batch = batches(forecaster.dataset.splits.train, 40)[0]
    rows, per_step = [], []
    for steps in range(1, ranks + 1):
        job = forecaster.job(config(small_data, **{"strategy.time_steps": str(steps)}), ranks)
        rows.append(job.count(job.draw(job.on_first(batch), 0)).rows_by_place())
        projected = {"strategy.time_steps": str(steps), "strategy.remote": "projected"}
        # Projected rows are requested micro-batch by micro-batch, as raw rows would be without pre-gathering.
        job = forecaster.job(config(small_data, **projected), ranks)
        per_step.append(job.count(job.draw(job.on_first(batch), 0)).rows_by_place()["remote"])
    assert all(each == rows[0] for each in rows)
    assert all(rows[0]["remote"] <= each for each in per_step)
    assert per_step[0] == rows[0]["remote"]


def test_models_that_differ_go_to_all_ranks_and_their_gradients_home(small_data, forecaster):
    values = {"strategy.vary": ("model.hidden=8,16,32",), "strategy.remote": "raw"}
    one, several = (
        forecaster.forecast("leap", config(small_data, **each), 3) for each in ({"strategy.remote": "raw"}, values)
    )
    sizes = [_parameters(forecaster, hidden) * 4 for hidden in (8, 16, 32)]
    assert several.sent["parameters"] == several.sent["gradients"] == 2 * sum(sizes)
    assert one.sent["parameters"] == 0
    for kind in ("features", "ids", "labels", "schedule"):
        assert several.sent[kind] == one.sent[kind]
    assert all(np.array(several.memory) > one.memory)


def _parameters(forecaster, hidden):
    dataset = forecaster.dataset
    settings = config("", **{"model.hidden": hidden})
    model = build_model(settings.model, 2, dataset.feature_dim, dataset.classes, 0, torch.float32)
    return sum(each.numel() for each in model.parameters())


def test_a_batch_of_one_root_and_of_none(small_data, forecaster):
    job = forecaster.job(config(small_data, **{"strategy.time_steps": "N"}), 4)
    one, none = (job.count(job.draw(job.on_first(forecaster.dataset.splits.train[:roots]), 0)) for roots in (1, 0))
    assert sum(one.rows_by_place().values()) > 0
    assert sum(none.rows_by_place().values()) == 0


def test_an_epoch_is_its_whole_batches_and_its_last(small_data, forecaster):
    training = len(forecaster.dataset.splits.train)
    found = forecaster.forecast("leap", config(small_data, **{"train.batch_size": training - 1}), 2)
    assert found.iterations == 2
    assert found.epoch_rows["local"] > found.rows["local"]
    # Every byte of a pair is one of a kind.
    assert found.pairs.sum() == pytest.approx(sum(found.sent.values()))
    assert (np.diag(found.pairs) == 0).all()
    assert 0 < found.micrograph_locality <= 1
    assert found.imbalance >= 1


def test_bytes_between_ranks_are_left_out_where_there_are_many_ranks(small_data, forecaster, monkeypatch):
    paired = forecaster.forecast("leap", config(small_data), 2).to_values()
    monkeypatch.setattr("leapmpi.plan.traffic_model.MOST_PAIRED", 1)
    found = Forecaster(forecaster.dataset, forecaster.topology).forecast("leap", config(small_data), 2).to_values()
    assert found["pairs"] is None
    assert found == paired | {"pairs": None}
    kinds = "roles", "left_out", "too_large", "auto", "topology", "feature_memory", "memory_split", "rates"
    empty: dict = dict.fromkeys(kinds, ())
    assert "R_micro" in forecast_table({**empty, "forecasts": [found]})


def test_more_time_steps_take_less_memory_for_hidden_values(small_data, forecaster):
    values = {"model.hidden": 512, "train.batch_size": 200}
    peaks = [
        max(forecaster.forecast("leap", config(small_data, **values, **{"strategy.time_steps": steps}), 4).memory)
        for steps in ("1", "2", "N")
    ]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[-1]


def test_rows_prepared_ahead_take_memory(small_data, forecaster):
    def memory(**values):
        return np.array(
            forecaster.forecast("leap", config(small_data, **{"strategy.remote": "raw"} | values), 4).memory
        )

    none, one, two = (memory(**{"strategy.prefetch": depth}) for depth in "012")
    assert (none < one).all()
    assert (two - one == one - none).all()
    assert (memory() == two).all()


def test_rows_are_copied_where_a_gpu_trains_and_read_where_they_lie_elsewhere(tmp_path):
    graph = random_graph(n=240, degree=6)
    graph.features = np.tile(graph.features, 4)
    write_dataset(tmp_path / "wide", graph, np.arange(240) % 2, 2, method="test", figures={}, seed=0)
    dataset = open_dataset(tmp_path / "wide")
    forecaster = Forecaster(dataset, load_topology(dataset))

    def memory(device):
        values = {"strategy.remote": "raw", "strategy.prefetch": "0", "run.device": device}
        return np.array(forecaster.forecast("leap", config(tmp_path / "wide", **values), 2).memory)

    least = 20 * 4 * len(dataset.splits.train) // 20
    assert (memory("cuda") >= memory("cpu") + least).all()
    timed = plan(config(tmp_path / "wide", **{"run.device": "cuda"}), "2", "pull,leap", "1gbit")
    assert all(each["epoch_seconds"] > 0 for each in timed["forecasts"])


def test_ranks_and_settings_that_cannot_be_are_said_in_a_sentence(small_data):
    outcome = plan(config(small_data), "2,4,5", "leap,leap:time-steps=3")
    assert [(each["ranks"], each["strategy"]) for each in outcome["forecasts"]] == [
        (2, "leap"), (4, "leap"), (4, "leap:time-steps=3"),
    ]  # fmt: skip
    step, parts = outcome["left_out"]
    assert step.startswith("leap:time-steps=3 on 2 ranks: ")
    assert parts.startswith("5 ranks need a dataset of at least 5 parts and this one has 4")
    with pytest.raises(ConfigError, match="'two' is not a number of ranks"):
        parse_ranks("2,two")


def test_ranks_that_nobody_gave_are_those_that_the_dataset_has_parts_for(tmp_path):
    for parts, expected in ((1, {1}), (2, {2}), (4, {2, 4})):
        folder = tmp_path / str(parts)
        write_dataset(folder, random_graph(), np.arange(60) % parts, parts, method="test", figures={}, seed=0)
        outcome = plan(config(tmp_path / str(parts)), None, "leap,pull")
        assert {each["ranks"] for each in outcome["forecasts"]} == expected
        assert outcome["left_out"] == []


def test_the_command_prints_a_table_or_json_without_mpi(small_data, capsys):
    arguments = ["plan", str(small_data), "--ranks", "2", "--strategies", "pull,leap", "--link", "1gbit"]
    assert main([*arguments, "--hidden", "16"]) == 0
    text = capsys.readouterr().out
    assert "R_micro" in text
    assert "MiB an iteration" in text
    assert main([*arguments, "--json"]) == 0
    pull, leap = json.loads(capsys.readouterr().out)["forecasts"]
    assert leap["rows"]["remote"] < pull["rows"]["remote"]
    assert pull["epoch_seconds"] > 0
    assert main(["plan", str(small_data), "--link", "quick"]) == 2
    assert "--link quick" in capsys.readouterr().err
    assert main(["plan", str(small_data), "--compare", str(small_data)]) == 4
    capsys.readouterr()


def test_bytes_between_ranks_are_left_out_among_many(small_data, capsys, monkeypatch):
    monkeypatch.setattr("leapmpi.plan.traffic_model.MOST_PAIRED", 1)
    assert main(["plan", str(small_data), "--ranks", "2", "--strategies", "leap"]) == 0
    assert "leap" in capsys.readouterr().out
    assert main(["plan", str(small_data), "--ranks", "2", "--strategies", "leap", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forecasts"][0]["pairs"] is None


def test_seconds_are_one_prediction_by_rates_that_are_named_and_no_clock(small_data, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = config(small_data, **{"train.batch_size": 200})
    first, second = plan(settings, "2,4"), plan(settings, "2,4")
    assert [each["epoch_seconds"] for each in first["forecasts"]] == [
        each["epoch_seconds"] for each in second["forecasts"]
    ]
    # What --strategy auto compares is what the table shows.
    table = {(each["ranks"], each["strategy"]): each["epoch_seconds"] for each in first["forecasts"]}
    for choice in first["auto"]:
        for name, cost in choice["forecasts"].items():
            assert table[choice["ranks"], name] == pytest.approx(cost["seconds"], rel=0.05)
    assert main(["plan", str(small_data), "--ranks", "2"]) == 0
    assert "2 ranks: seconds by documented constants" in capsys.readouterr().out
    slow = MachineRates(multiply_add=1.0)
    keep_rates(machine_key(processor_name(), library_name(load_mpi()), 2, 2), slow, {})
    assert main(["plan", str(small_data), "--ranks", "2", "--link", "1gbit"]) == 0
    text = capsys.readouterr().out
    assert "2 ranks: seconds by rates measured on 2 nodes, links as --link 1gbit" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    (row,) = plan(settings, "2", "leap", "1gbit")["forecasts"]
    assert row["epoch_seconds"] > 1e3 * table[2, "leap"]


@pytest.mark.parametrize("arguments", [
    ("--strategies", "p3,leap"), ("--strategies", "leap", "--sampler", "ladies"),
], ids=["split columns", "weighted edges"])  # fmt: skip
def test_a_link_tells_the_time_of_any_strategy_and_sampler(arguments, small_data, capsys):
    assert (
        main(["plan", str(small_data), "--ranks", "2", *arguments, "--link", "1gbit", "--hidden", "16", "--json"]) == 0
    )
    assert all(each["epoch_seconds"] > 0 for each in json.loads(capsys.readouterr().out)["forecasts"])


def test_what_owners_answer_is_forecast_and_the_topology_is_sized_in_both_ways(small_data):
    sharded = config(small_data, **{"run.topology": "sharded", "strategy.remote": "raw"})
    found = plan(sharded, "1,3", "leap,p3")
    alone, several = found["forecasts"]
    assert alone["sent"]["topology"] == 0
    assert several["sent"]["topology"] > 0
    assert all("choose leap or pull" in sentence for sentence in found["left_out"])
    for sizes in found["topology"]:
        assert len(set(sizes["node"])) == 1
        assert max(sizes["sharded"]) < sizes["node"][0] or sizes["ranks"] == 1
    # A rank holds its own shard instead of a copy of all, and no names of sources that nothing reads.
    whole = plan(config(small_data, **{"strategy.remote": "raw"}), "3", "leap")["forecasts"][0]
    spared = np.array(whole["memory"]) - several["memory"]
    assert (spared >= np.array(sizes["node"]) - sizes["sharded"]).all()


@pytest.mark.parametrize("settings", [
    {"strategy.name": "hybrid", "train.batch_size": "full", "sampling.fanout": "all,all"},
    {"strategy.name": "leap", "sampling.fanout": "3,3"},
], ids=["hybrid", "leap"])  # fmt: skip
def test_a_run_with_a_memory_limit_is_compared(settings, small_data, tmp_path):
    common = {"data": str(small_data), "run.folder": str(tmp_path / "run"), "run.log_level": "error"}
    limited = {"strategy.memory_limit": "1G", "train.epochs": 2, "evaluate.every": 0, "model.hidden": 8}
    run = train(Config.from_values(common | limited | settings))
    found = compare(Config.from_values({"data": str(small_data)}), str(run.path))
    assert found["rows"]["local"]["ratio"] == pytest.approx(1, abs=0.2 if settings["strategy.name"] == "leap" else 0)


def test_a_run_on_another_graph_is_not_compared(finished_run, tmp_path):
    graph = random_graph()
    write_dataset(tmp_path / "other", graph, np.zeros(60, np.int32), 1, method="test", figures={}, seed=0)
    with pytest.raises(DataError, match=f"other holds another graph than {finished_run.path} was trained on"):
        compare(Config.from_values({"data": str(tmp_path / "other")}), str(finished_run.path))
