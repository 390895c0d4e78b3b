"""`leapmpi bench`: strategies side by side in one job, on the same batches."""

import json
import sys

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.config.schema import Config
from leapmpi.config.strategy_list import parse_strategies
from leapmpi.errors import ConfigError
from leapmpi.runs.run import load_run
from tests.support.launch import mpirun

STRATEGIES = "pull,leap,leap:time-steps=N,leap:remote=partial,naive,p3"


def test_strategies_are_configs_by_label():
    configs = parse_strategies(f" {STRATEGIES} ", Config())
    assert list(configs) == STRATEGIES.split(",")
    assert configs["pull"].strategy.name == "pull"
    assert configs["leap:time-steps=N"].strategy.time_steps == "N"
    assert configs["leap:remote=partial"].strategy.remote == "partial"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no strategy"),
        ("lep", "did you mean 'leap'?"),
        ("pull,auto", "auto chooses one of the others"),
        ("leap:ring", "write settings as NAME:KEY=VALUE"),
        ("leap:steps=2", "unknown key 'strategy.steps'"),
        ("leap:name=pull", "the name comes first"),
        ("leap:time-steps=N:time-steps=1", "time-steps is given twice"),
    ],
)
def test_strategies_that_are_none(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_strategies(text, Config())
    assert message in str(caught.value)


def test_a_strategy_given_twice_is_timed_twice():
    assert list(parse_strategies("pull,leap,pull,pull", Config())) == ["pull", "leap", "pull (2)", "pull (3)"]


@pytest.mark.parametrize("flag", ["--replay", "--timeline", "--checkpoint-every", "--stop-before-end"])
def test_flags_of_run_folders_are_not_offered(flag, small_data, capsys):
    assert main(["bench", str(small_data), flag]) == 2
    assert f"unknown flag {flag}" in capsys.readouterr().err


def test_all_strategies_learn_the_same_on_two_ranks(small_data):
    command = [sys.executable, "-m", "leapmpi.cli", "bench", small_data, "--strategies", STRATEGIES, "--json"]
    settings = ["--epochs", "3", "--dtype", "float64", "--hidden", "8", "--batch-size", "32", "--fanout", "5,5"]
    job = mpirun(2, [*command, *settings])
    assert job.returncode == 0, job.stderr
    rows = json.loads(job.stdout)
    assert [row["strategy"] for row in rows] == STRATEGIES.split(",")
    assert [row["time_steps"] for row in rows] == [1, 1, 2, 1, 1, 1]
    assert [row["remote"] for row in rows] == ["raw", "raw", "raw", "partial", "ring", "columns"]
    for row in rows:
        assert row["loss"] == pytest.approx(rows[0]["loss"], rel=1e-9)
        assert row["accuracy"] == rows[0]["accuracy"]
        assert len(row["seconds"]) == 3
    assert rows[3]["bytes"]["features"] == 0 < rows[3]["bytes"]["activations"]
    assert rows[2]["bytes"]["parameters"] > 0 == rows[1]["bytes"]["parameters"]
    assert rows[1]["rows"] == rows[2]["rows"]
    for row in rows[4:]:
        assert row["bytes"]["features"] == row["rows"]["remote"] == 0 < row["bytes"]["activations"]
    assert rows[4]["bytes"]["parameters"] > 0 == rows[5]["bytes"]["parameters"]
    assert rows[5]["bytes"]["gradients"] < rows[0]["bytes"]["gradients"] < rows[4]["bytes"]["gradients"]


def test_caches_and_encodings_spare_bytes_and_say_what_they_cost(small_data):
    strategies = "leap,leap:cache=0.3,pull:cache=0.3:cache-policy=degree,leap:wire-dtype=int8"
    strategies += ",leap:cache=0.3:remote=partial"
    command = [sys.executable, "-m", "leapmpi.cli", "bench", small_data, "--strategies", strategies, "--json"]
    settings = ["--epochs", "2", "--dtype", "float64", "--hidden", "8", "--batch-size", "32", "--fanout", "5,5"]
    job = mpirun(2, [*command, *settings])
    assert job.returncode == 0, job.stderr
    plain, cached, pulled, coarse, partial = json.loads(job.stdout)
    for row in (cached, pulled, partial):
        assert row["loss"] == pytest.approx(plain["loss"], rel=1e-9)
    assert cached["rows"]["cached"] + cached["rows"]["remote"] == plain["rows"]["remote"]
    for row in (cached, pulled):
        assert row["cache"]["hit_rate"] == row["rows"]["cached"] / (row["rows"]["cached"] + row["rows"]["remote"])
        assert row["cache"]["predicted_hit_rate"] == pytest.approx(row["cache"]["hit_rate"], abs=0.1)
    assert coarse["bytes"]["features"] * 5 * 4 == plain["bytes"]["features"] * (5 + 4)
    assert coarse["row_error"]["rows"] == plain["rows"]["remote"]
    assert 0 < coarse["row_error"]["mean"] <= coarse["row_error"]["max"] < 0.02
    assert coarse["loss"] != plain["loss"]
    assert coarse["loss"] == pytest.approx(plain["loss"], rel=0.02)
    # No raw row travels, so nothing is cached.
    assert "cache" not in partial
    assert partial["rows"]["cached"] == 0
    assert partial["ignored"] == ["--cache is ignored: no raw rows cross ranks (first layer: partial)"]
    assert cached["ignored"] == plain["ignored"] == []


def test_models_that_differ_are_set_against_separate_runs(small_data, tmp_path):
    # No model has the widths of the config itself, which fit no number of heads.
    settings = ["--model", "gat", "--heads", "2", "--hidden", "3"]
    settings += ["--replicas", "independent", "--vary", "model.hidden=4,8,6", "--epochs", "2", "--batch-size", "32"]
    settings += ["--fanout", "5,5", "--dtype", "float64", "--remote", "raw"]
    command = [sys.executable, "-m", "leapmpi.cli", "bench", small_data, "--strategies", "leap", "--json", *settings]
    job = mpirun(2, command)
    assert job.returncode == 0, job.stderr
    ensemble, *separate, summed = json.loads(job.stdout)
    assert ensemble["strategy"] == "leap, 3 models"
    assert [row["strategy"] for row in separate] == ["model.hidden=4", "model.hidden=8", "model.hidden=6"]
    assert ensemble["loss"] == pytest.approx(summed["loss"], rel=1e-9)
    assert ensemble["rows"] == separate[0]["rows"]
    assert summed["bytes"]["features"] == 3 * ensemble["bytes"]["features"] > 0
    assert summed["epoch_seconds"] == pytest.approx(sum(row["epoch_seconds"] for row in separate))


def test_a_run_of_models_that_differ_holds_a_run_of_each(small_data, tmp_path, capsys):
    run = tmp_path / "run"
    settings = ["--epochs", "2", "--batch-size", "32", "--threads", "1", "--log-level", "warning"]
    varied = ["--replicas", "independent", "--vary", "model.hidden=4,8"]
    assert main(["train", str(small_data), "--run", str(run), *settings, *varied]) == 0
    assert main(["compare", str(run), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["varied"] for row in rows] == ["model.hidden=4", "model.hidden=8"]
    # The config in a model's folder trains that model alone, to the same weights.
    alone = tmp_path / "alone"
    config = str(run / "model-01" / "config.toml")
    assert main(["train", str(small_data), "--config", config, "--run", str(alone), "--log-level", "warning"]) == 0
    ours, theirs = load_run(run / "model-01").weights("final"), load_run(alone).weights("final")
    assert {name: each.shape for name, each in ours.items()} == {name: each.shape for name, each in theirs.items()}
    for name, each in ours.items():
        np.testing.assert_allclose(each, theirs[name], rtol=1e-4, atol=1e-6)


def test_the_table_for_people(small_data, capsys):
    assert main(["bench", str(small_data), "--strategies", "leap,pull", "--epochs", "2", "--hidden", "8"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    lines = [line.split() for line in output.splitlines()]
    assert [line[0] for line in lines if line and line[0] in ("leap", "pull")] == ["leap", "pull"] * 3


def test_no_run_folder_is_made(small_data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", str(small_data), "--strategies", "leap", "--epochs", "1", "--hidden", "8"]) == 0
    # The one epoch there is is no warm one.
    assert " cold  -  " in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
