"""Damaged run folders: some of the thousands that `python -m tests.soak.fuzz_runs` gives to every command."""

import json
import os
import shutil

import pytest

from leapmpi.cli.main import main
from tests.soak.fuzz_runs import soak

pytestmark = pytest.mark.compiles

TRIALS = 40


@pytest.mark.timeout(300)
def test_every_command_ends_in_a_sentence_or_in_success(tmp_path):
    counts, faults = soak(TRIALS, seed=3, base=tmp_path)
    assert not faults, faults[:3]
    assert counts["code 4"] > TRIALS // 4


def set_in_summary(**values):
    def change(folder):
        path = folder / "summary.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def replaced_by(text):
    return lambda folder: (folder / "summary.json").write_text(text)


def pipe(folder):
    (folder / "summary.json").unlink()
    os.mkfifo(folder / "summary.json")


DAMAGE = {
    "another type": (replaced_by("[1]"), "it is [1], not an object"),
    "a missing key": (set_in_summary(epochs=[{"seconds": 1}]), "epochs[0] has no loss"),
    "no epoch": (set_in_summary(epochs=[]), "epochs has 0 items, not at least 1"),
    "text for a number": (set_in_summary(ranks="two"), "ranks is 'two', not a whole number"),
    "no finite number": (replaced_by('{"schema": 1, "seconds": NaN}'), "seconds is nan, not a finite number"),
    "half a character": (replaced_by('{"schema": 1, "strategy": "\\ud800"}'), "strategy is '\\ud800', not text"),
    "deep nesting": (replaced_by("[" * 100_000), "its values are nested too deeply"),
    "a number of 5,000 digits": (replaced_by("9" * 5000), "a number in it has thousands of digits"),
    "a pipe": (pipe, "cannot be read (it is a pipe or a device, not a regular file)"),
    "a failure without its reason": (set_in_summary(status="failed"), "it has no why"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_compare_says_what_is_wrong_with_a_summary(finished_run, tmp_path, capsys, what):
    damage, sentence = DAMAGE[what]
    damage(shutil.copytree(finished_run.path, tmp_path / "run"))
    assert main(["compare", str(tmp_path / "run")]) == 4
    said = capsys.readouterr().err
    assert f"{tmp_path}/run/summary.json: " in said
    assert sentence in said
