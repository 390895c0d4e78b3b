"""Counts in messages."""

import pytest

from leapmpi.errors import counted, there_are


@pytest.mark.parametrize(
    ("noun", "several"),
    [("rank", "ranks"), ("training vertex", "training vertices"), ("class", "classes"), ("entry", "entries")],
)
def test_one_thing_is_not_a_plural(noun, several):
    assert [counted(number, noun) for number in (0, 1, 2000)] == [f"0 {several}", f"1 {noun}", f"2,000 {several}"]
    assert [there_are(number, noun) for number in (1, 2)] == [f"there is 1 {noun}", f"there are 2 {several}"]
