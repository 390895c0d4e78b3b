"""The schema of tables: times of a split."""

import pytest

pytest.importorskip("pyarrow")

from data_prep.database.table_schema import seconds_of
from leapmpi.errors import DataError


def test_times_of_a_schema_are_whole_in_any_spelling():
    assert [seconds_of(each, "train_until") for each in (1_700_000_000, 1.7e9, "1970-01-02")] == [
        1_700_000_000,
        1_700_000_000,
        86_400,
    ]


@pytest.mark.parametrize("value", [1.5, 1e19, float("nan"), float("inf"), True, None])
def test_other_times_are_refused(value):
    with pytest.raises(DataError, match=r"train_until is .*; expected a date, or a whole number"):
        seconds_of(value, "train_until")
