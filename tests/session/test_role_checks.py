"""Settings that do not go with ranks that prepare are refused in a sentence, before anything is loaded."""

import pytest

from leapmpi import Config
from leapmpi.config.compatibility import check
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import ConfigError, DataError
from leapmpi.session.role_checks import by_role, check_roles
from leapmpi.session.session import facts_of


def config_of(**settings):
    return Config.from_values(
        {"strategy.prepare_ranks": 2, **{key.replace("__", "."): v for key, v in settings.items()}}
    )


def test_sums_are_refused_for_a_model_that_reads_rows(small_data):
    config = config_of(strategy__remote="sums", model__name="gat")
    with pytest.raises(ConfigError, match=r"strategy.remote: with --prepare-ranks what is sent is made of raw rows"):
        check_roles(config, open_dataset(str(small_data)), 4)


def test_what_the_table_refuses_is_refused_with_facts_of_the_dataset(small_data):
    config = config_of(train__task="link")
    with pytest.raises(ConfigError, match=r"train.task: with --prepare-ranks edges cannot be trained; train vertices"):
        check(facts_of(config, open_dataset(str(small_data))))


def test_too_few_parts_or_ranks_are_refused(small_data):
    dataset = open_dataset(str(small_data))
    with pytest.raises(DataError, match=r"5 ranks prepare but the dataset has 4 parts; partition .* --parts 5"):
        check_roles(config_of(strategy__prepare_ranks=5), dataset, 6)
    with pytest.raises(DataError, match="6 compute but the dataset has 4 parts"):
        check_roles(config_of(), dataset, 8)
    with pytest.raises(ConfigError, match="2 of 2 ranks would prepare, which leaves none to compute"):
        check_roles(config_of(), dataset, 2)
    check_roles(config_of(), dataset, 6)


def test_auto_is_leap_on_raw_rows():
    found = by_role(config_of()).strategy
    assert (found.name, found.remote) == ("leap", "raw")
    assert by_role(config_of(strategy__name="pull")).strategy.name == "pull"
    plain = Config()
    assert by_role(plain) is plain
