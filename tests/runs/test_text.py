"""Figures as text."""

from leapmpi.runs.text import counted


def test_one_thing_is_not_a_plural():
    assert [counted(number, "rank") for number in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
