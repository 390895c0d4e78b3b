"""`leapmpi bench`: strategies side by side in one job, on the same batches; on two ranks in tests/parallel."""

import json
import re

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.config.flags import parse_strategies
from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError
from leapmpi.runs.run import load_run

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


@pytest.mark.parametrize("flag", ["--replay", "--timeline", "--checkpoint-every"])
def test_flags_of_run_folders_are_not_offered(flag, small_data, capsys):
    assert main(["bench", str(small_data), flag]) == 2
    assert f"unknown flag {flag}" in capsys.readouterr().err


def test_a_run_of_models_that_differ_holds_a_run_of_each(small_data, tmp_path, capsys):
    run = tmp_path / "run"
    settings = ["--epochs", "2", "--batch-size", "32", "--threads", "1", "--log-level", "warning"]
    varied = ["--vary", "model.hidden=4,8"]
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
    assert max(map(len, output.splitlines())) <= 80


def test_no_run_folder_is_made(small_data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", str(small_data), "--strategies", "leap", "--epochs", "1", "--hidden", "8"]) == 0
    # The one epoch there is is not a warm one.
    assert re.search(r"s/epoch +[\d.]+ cold\n", output := capsys.readouterr().out)
    assert "ratio  " not in output
    assert list(tmp_path.iterdir()) == []
