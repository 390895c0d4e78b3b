"""What the strategy owner refuses, in a sentence, and what `--strategy auto` makes of it."""

import pytest

from leapmpi.config.schema import Config
from leapmpi.engine.placement import strategy_named
from leapmpi.errors import ConfigError
from leapmpi.session.setup import open_for_training

OWNER = strategy_named("owner")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model.name": "mine.py:Mine"}, "owner computes layer by layer, and mine.py:Mine is run as a whole; use leap"),
        ({"model.norm": "batch"}, "owner has no batch normalisation; give --norm layer"),
        ({"strategy.memory_limit": "1G"}, "owner trains a batch in one step; give a smaller --batch-size"),
        ({"strategy.cache": 0.2}, "strategy.cache: owner .*leave it out"),
        ({"train.task": "link"}, "owner trains vertices, not edges; use leap"),
    ],
)
def test_what_it_cannot_train_is_refused_in_a_sentence(settings, sentence, small_data):
    config = Config.from_values({"data": str(small_data), "strategy.name": "owner", **settings})
    with pytest.raises(ConfigError, match=sentence):
        OWNER.check_settings(config, open_for_training(config))
