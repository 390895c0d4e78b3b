"""Hints about flags that other programs have: each names a flag that exists, for a word that is none."""

from leapmpi.config import other_names
from leapmpi.config.sections import fields

OF_TRAIN = {each.flag for _, each in fields()} | {"config"}
OF_PREPARATION = {"parts", "max-mem"}


def test_every_hint_names_a_flag_that_exists():
    named = {*other_names._OTHERS, *(flag for flag, _ in other_names._EXPLAINED.values())}
    assert named <= OF_TRAIN | OF_PREPARATION


def test_no_hint_is_about_a_flag_that_exists_or_about_two():
    words = " ".join([*other_names._OTHERS.values(), *other_names._EXPLAINED]).split()
    assert len(words) == len(set(words))
    assert not set(words) & (OF_TRAIN - {"data", "memory-limit"})


def test_a_hint_is_for_commands_that_have_the_flag():
    assert other_names.about_other_name("learning_rate", ["lr"]) == "did you mean '--lr'?"
    assert other_names.about_other_name("learning-rate", ["parts"]) == ""
