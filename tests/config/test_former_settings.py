"""Settings of earlier versions: what whoever gives one is told to do, and configs that older runs recorded."""

import pytest

from leapmpi.cli.commands import train
from leapmpi.config.flags import with_flags
from leapmpi.config.other_names import FORMER, lost_values, recorded_values
from leapmpi.config.parser import CommandParser
from leapmpi.config.schema import Config
from leapmpi.config.sections import fields, flattened
from leapmpi.config.toml import to_toml
from leapmpi.errors import ConfigError
from leapmpi.runs.run import Run

GONE = [key for key, former in FORMER.items() if former.becomes is None]


def test_none_is_a_setting_still():
    assert not FORMER.keys() & dict(fields()).keys()


@pytest.mark.parametrize("key", FORMER)
def test_its_flag_is_refused_by_what_to_do_instead(key):
    flag = FORMER[key].flag or key.rpartition(".")[2].replace("_", "-")
    parser = CommandParser(prog="leapmpi train")
    train.add_arguments(parser)
    with pytest.raises(ConfigError) as caught:
        parser.parse_strictly(["data", f"--{flag}", "1"])
    assert f"leapmpi no longer has --{flag}: {FORMER[key].instead}" in str(caught.value)


@pytest.mark.parametrize("key", GONE)
def test_a_value_in_a_file_of_settings_is_refused_unless_it_is_the_default(key):
    assert Config.from_values({key: FORMER[key].default}) == Config()
    with pytest.raises(ConfigError, match=f"here: leapmpi no longer has {key}: "):
        Config.from_values({key: "another"}, "here")


def test_an_argument_of_python_is_refused_too():
    with pytest.raises(ConfigError, match="leapmpi no longer has --migrate: at several time steps models always tr"):
        with_flags(Config(), {"migrate": "none"})


def test_models_that_differ_need_no_other_setting():
    found = Config.from_values({"strategy.replicas": "independent", "strategy.vary": "model.hidden=4,8"})
    assert found == Config.from_values({"strategy.vary": "model.hidden=4,8"})


def test_a_config_that_an_older_run_recorded_is_read(tmp_path):
    older = flattened(Config().to_values()) | dict.fromkeys(GONE, "another")
    assert recorded_values(older) == flattened(Config().to_values())
    lines = to_toml(Config()).splitlines()
    lines.insert(lines.index("[strategy]") + 1, 'cache_policy = "degree"\nmigrate = "none"\nbalance = "on"')
    (tmp_path / "config.toml").write_text("\n".join(lines))
    assert Run(tmp_path).config == Config()


def test_what_such_a_run_loses_is_said_once_each():
    older = {key: former.default for key, former in FORMER.items()}
    assert lost_values(older) == []
    assert lost_values(older | {"strategy.balance": "on"}) == [
        "strategy.balance was on, which leapmpi no longer has: leap trains each root on its home rank; "
        "leapmpi-prep partition --balance evens out the parts"
    ]
