"""Settings that do not go with ranks that prepare are refused in a sentence, before anything is loaded."""

import pytest

from leapmpi import Config
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import ConfigError, DataError
from leapmpi.training.disaggregated.checks import by_role, check_roles


def config_of(**settings):
    return Config.from_values(
        {"strategy.prepare_ranks": 2, **{key.replace("__", "."): v for key, v in settings.items()}}
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"strategy__name": "p3"}, "strategy.name with --prepare-ranks 2: p3 exchanges what depends on weights"),
        ({"strategy__remote": "partial"}, "no current weights for partial rows; leave it out"),
        ({"strategy__time_steps": "N"}, "strategy.time_steps with --prepare-ranks 2: models stay where they are"),
        ({"strategy__memory_limit": "1G"}, "strategy.memory_limit"),
        ({"strategy__cache": 0.1}, "strategy.cache"),
        ({"strategy__wire_dtype": "int8"}, "rows are sent as they are"),
        ({"model__norm": "batch"}, "use --norm layer"),
        ({"run__topology": "sharded"}, "use node"),
        ({"train__task": "link"}, "train vertices"),
        ({"strategy__remote": "sums", "model__name": "gat"}, r"strategy.remote .*: what is sent is made of raw rows"),
    ],
)
def test_a_setting_that_does_not_go_with_roles_is_named(settings, said, small_data):
    with pytest.raises(ConfigError, match=said):
        check_roles(config_of(**settings), open_dataset(str(small_data)), 4)


def test_too_few_parts_or_ranks_are_refused(small_data):
    dataset = open_dataset(str(small_data))
    with pytest.raises(DataError, match=r"5 ranks prepare but the dataset has 4 parts; partition .* --parts 5"):
        check_roles(config_of(strategy__prepare_ranks=5), dataset, 6)
    with pytest.raises(DataError, match="6 compute but the dataset has 4 parts"):
        check_roles(config_of(), dataset, 8)
    with pytest.raises(ConfigError, match="2 of 2 ranks would prepare, and none would be left to compute"):
        check_roles(config_of(), dataset, 2)
    check_roles(config_of(), dataset, 6)


def test_auto_is_leap_on_raw_rows(small_data):
    dataset = open_dataset(str(small_data))
    found = by_role(config_of(), dataset).strategy
    assert (found.name, found.remote) == ("leap", "raw")
    assert by_role(config_of(strategy__name="pull"), dataset).strategy.name == "pull"
    plain = Config()
    assert by_role(plain, dataset) is plain
