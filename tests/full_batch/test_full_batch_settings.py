"""What a full batch may be asked for: sentences for all else, and the number that `full` stands for."""

import pytest

from leapmpi.config.schema import Config
from leapmpi.config.setting import FULL_BATCH
from leapmpi.engine.placement import strategy_named
from leapmpi.errors import ConfigError
from leapmpi.session.setup import open_for_training, with_batch_size

STRATEGIES = ("depcomm", "depcache", "hybrid")


def config_of(data, name="depcomm", **settings):
    given = {"strategy.name": name, "sampling.fanout": "all,all", "train.batch_size": "full"}
    return Config.from_values(
        {"data": str(data), **given, **{key.replace("__", "."): x for key, x in settings.items()}}
    )


@pytest.mark.parametrize("name", [*STRATEGIES, "leap", "pull", "auto"])
def test_full_is_the_number_of_training_vertices(name, small_data):
    config = config_of(small_data, name)
    assert config.train.batch_size == FULL_BATCH
    dataset = open_for_training(config)
    found = with_batch_size(config, dataset)
    assert found.train.batch_size == len(dataset.splits.train)
    assert with_batch_size(found, dataset) == found
    assert Config.from_values(config.to_values()) == config


@pytest.mark.parametrize("name", ["naive", "p3"])
def test_strategies_of_mini_batches_take_numbers_alone(name, small_data):
    config = config_of(small_data, name)
    with pytest.raises(ConfigError, match=f"{name} trains mini-batches; give a number, or use leap"):
        with_batch_size(config, open_for_training(config))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"train__batch_size": 7}, "all .* training vertices in every step, and --batch-size is 7; give --batch-size"),
        ({"sampling__fanout": "all,10"}, "draws nothing; give --fanout all,all, or use leap or pull"),
        ({"sampling__sampler": "labor-0"}, "draws nothing, so that --sampler labor-0 has no part in it; leave it out"),
        ({"model__name": "mine.py:Mine"}, "computes layer by layer, and mine.py:Mine is run as a whole; use leap"),
        ({"strategy__cache": 0.2}, "strategy.cache: .* leave it out"),
        (
            {"strategy__vary": ["train.lr=0.1,0.2"]},
            "strategy.vary: .* trains one model",
        ),
    ],
)
def test_what_is_no_full_batch_is_refused_in_a_sentence(name, settings, sentence, small_data):
    config = config_of(small_data, name, **settings)
    dataset = open_for_training(config)
    with pytest.raises(ConfigError, match=sentence):
        strategy_named(name).check_settings(with_batch_size(config, dataset), dataset)


@pytest.mark.parametrize(("name", "kind"), [("depcache", "partial"), ("hybrid", "projected")])
def test_how_rows_are_sent_is_no_setting_of_those_that_send_none_or_choose(name, kind, small_data):
    config = config_of(small_data, name, strategy__remote=kind)
    dataset = open_for_training(config)
    with pytest.raises(ConfigError, match=f"strategy.remote: {name} .*leave it out"):
        strategy_named(name).check_settings(with_batch_size(config, dataset), dataset)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(("setting", "value"), [("time_steps", "2"), ("time_steps", "measured")])
def test_settings_of_leap_are_refused(name, setting, value, small_data):
    strategy = config_of(small_data, name, **{f"strategy__{setting}": value}).strategy
    with pytest.raises(ConfigError, match=f"strategy.{setting}: {name} trains every vertex at its owner in one step"):
        strategy_named(name).choose_time_steps(strategy, 4)
    assert strategy_named(name).choose_time_steps(config_of(small_data, name).strategy, 4) == 1
