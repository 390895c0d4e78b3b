"""--vary: all combinations of values, each a config of its own; what models cannot differ in is refused."""

import pytest

from leapmpi.cli.commands import train
from leapmpi.config.flags import add_settings, config_from
from leapmpi.config.parser import CommandParser
from leapmpi.config.schema import Config, models_of, variations
from leapmpi.config.toml import read_toml, to_toml
from leapmpi.errors import ConfigError


def varied(*vary, **values):
    return Config.from_values({"strategy.vary": vary, **values})


def test_values_of_several_settings_multiply():
    models = variations(varied("model.hidden=8,16", "train.lr=0.1,0.01,0.001"))
    assert len(models) == 6
    assert list(models)[:2] == ["model.hidden=8 train.lr=0.1", "model.hidden=8 train.lr=0.01"]
    last = models["model.hidden=16 train.lr=0.001"]
    assert (last.model.hidden, last.train.lr) == (16, 0.001)
    # Each can be trained by itself, as it stands.
    assert last == Config.from_values({"model.hidden": 16, "train.lr": 0.001})


def test_the_models_seed_is_that_of_everything_unless_given():
    assert Config.from_values({"train.seed": 5}).model_seed == 5
    assert Config.from_values({"train.seed": 5, "model.seed": 0}).model_seed == 0


def test_flags_repeat_and_toml_keeps_them(tmp_path):
    parser = CommandParser(prog="test")
    add_settings(parser)
    parser.add_argument("--data", default=None)
    words = ["--vary", "model.hidden=8,16", "--vary", "model.seed=1,2"]
    config = config_from(parser.parse_strictly(words))
    assert config.strategy.vary == ("model.hidden=8,16", "model.seed=1,2")
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert Config.from_values(read_toml(path)) == config
    assert Config.from_values({"strategy.vary": "model.seed=1,2; model.hidden=4"})


def test_settings_need_only_fit_together_in_each_model():
    unfit = {"model.name": "gat", "model.hidden": 18}
    models = models_of(varied("model.options.heads=2,3", "model.options.attention-dropout=0.1", **unfit))
    assert [each.model.options for each in models] == [(f"heads={heads}", "attention-dropout=0.1") for heads in (2, 3)]
    # Heads are gat's alone.
    assert [each.model.name for each in models_of(varied("model.name=gcn,sage", **unfit))] == ["gcn", "sage"]


def test_one_model_is_trained_unless_they_differ():
    config = Config.from_values({"model.name": "gcn"})
    assert models_of(config) == [config]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vary": "train.seed=1,2"}, "vary model.seed"),
        ({"vary": "train.batch_size=1,2"}, "cannot differ in train.batch_size"),
        ({"vary": "model.hiden=1,2"}, "did you mean 'model.hidden'?"),
        ({"vary": "model.foo=1,2"}, "unknown key 'model.foo'"),
        ({"vary": "lr=0.1,0.2"}, "unknown key 'lr'; did you mean 'train.lr'?"),
        ({"vary": "model=1,2"}, "model is a section, not a value"),
        ({"vary": "=4"}, "'=4' names no setting; write it as model.hidden=16,32"),
        ({"vary": "model.hidden"}, "names no values"),
        ({"vary": "model.hidden="}, "names no values"),
        ({"vary": "model.hidden=16,016"}, "names a value twice"),
        ({"vary": "train.lr=0.1,1e-1"}, "names a value twice"),
        ({"vary": "model.hidden=8,8"}, "names a value twice"),
        ({"vary": "model.hidden=8; model.hidden=16"}, "varied twice"),
        ({"vary": "model.hidden=0,8"}, "too small"),
        ({"vary": "model.hidden=8", "strategy.remote": "partial"}, "remote: partial does not go with"),
        ({"vary": "model.hidden=8", "strategy.time_steps": "N"}, "time_steps: N does not go with"),
    ],
)
def test_what_cannot_be_varied_is_refused(values, message):
    if "vary" in values:
        values = {**values, "strategy.vary": values["vary"]}
        del values["vary"]
    with pytest.raises(ConfigError) as caught:
        Config.from_values(values)
    assert message in str(caught.value)


def parsed(words):
    parser = CommandParser(prog="test")
    train.add_arguments(parser)
    return config_from(parser.parse_strictly(words))


def test_seeds_are_a_short_way_to_vary_them():
    config = parsed(["--seeds", "0,1,2", "--vary", "model.hidden=8,16"])
    assert config.strategy.vary == ("model.hidden=8,16", "model.seed=0,1,2")


@pytest.mark.parametrize("seeds", ["", "a", "0,0", "-5", "1.5"])
def test_seeds_are_distinct_whole_numbers(seeds):
    with pytest.raises(ConfigError, match=r"model\.seed"):
        parsed(["--seeds", seeds])
