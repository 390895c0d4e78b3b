"""`leapmpi plan` where some ranks prepare and others compute: what it says, and what it cannot."""

import json
import shutil

import pytest

from leapmpi.cli.main import main
from leapmpi.config.schema import Config
from leapmpi.config.toml import to_toml
from leapmpi.errors import ConfigError, RunFolderError
from leapmpi.tools.forecast import compare, plan

SMALL = {"train.batch_size": 40, "model.hidden": 8, "sampling.fanout": "4,3"}


def test_roles_are_forecast_beside_ranks_that_do_both(small_data):
    config = Config.from_values({"data": str(small_data), **SMALL})
    found = plan(config, "3,5", "leap:remote=raw,leap:prepare-ranks=2,leap:prepare-ranks=4", link="1gbit", iterations=1)
    assert [(each["ranks"], each["strategy"]) for each in found["forecasts"]] == [(3, "leap:remote=raw")]
    assert [(each["computing"], each["preparing"]) for each in found["roles"]] == [(1, 2), (3, 2), (1, 4)]
    for each in found["roles"]:
        assert each["prepare"] > 0
        assert each["compute"] > 0
        assert each["ranks_needed"] is None or each["ranks_needed"] >= 1
        assert 0 < each["busy"] <= 1
    assert found["roles"][2]["sent"]["features"] > found["roles"][0]["sent"]["features"], "more ranks, more remote rows"
    left_out = "\n".join(found["left_out"])
    assert "4 of 3 ranks would prepare, which leaves none to compute" in left_out
    assert "leap:remote=raw on 5 ranks: 5 ranks were started, but the dataset has 4 parts" in left_out


def test_sums_are_fewer_bytes_than_rows_and_a_slow_link_is_told(small_data):
    config = Config.from_values({"data": str(small_data), **SMALL, "model.name": "gcn"})
    strategies = "leap:prepare-ranks=2:remote=sums,leap:prepare-ranks=2:remote=raw"
    sums, rows = plan(config, "3", strategies, link="1kbit", iterations=1)["roles"]
    assert sum(sums["sent"].values()) < sum(rows["sent"].values())
    assert sums["ranks_needed"] is rows["ranks_needed"] is None
    assert "arrive too slowly" in rows["sentence"]


def test_the_command_prints_them(small_data, capsys):
    arguments = ["plan", str(small_data), "--ranks", "3", "--strategies", "pull:prepare-ranks=1", "--batch-size", "40"]
    assert main([*arguments, "--fanout", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["roles"][0]["computing"] == 2
    assert main([*arguments, "--fanout", "3"]) == 0
    assert "ranks 0-1 compute, rank 2 prepares: a mini-batch takes" in capsys.readouterr().out


def test_a_run_with_roles_is_not_compared(finished_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished_run.path, folder)
    (folder / "config.toml").write_text(to_toml(finished_run.config.replaced({"strategy.prepare_ranks": 1})))
    config = Config.from_values({"data": finished_run.config.data})
    with pytest.raises(RunFolderError, match="cannot be compared"):
        compare(config, str(folder))


def test_nothing_that_can_be_is_an_error(small_data):
    config = Config.from_values({"data": str(small_data), **SMALL})
    with pytest.raises(ConfigError, match="p3 exchanges what depends on weights"):
        plan(config, "3", "p3:prepare-ranks=1", iterations=1)
