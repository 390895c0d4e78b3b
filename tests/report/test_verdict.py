"""The verdict follows from records by fixed rules."""

import json

import pytest

from leapmpi.report.run_data import RunData
from leapmpi.report.sections.verdict import BAD, FAIR, verdict
from leapmpi.runs.run_folder import record_failure
from tests.support.made_run import make_run


def changed(path, change):
    """The run in `path` with `change` applied to the record of each epoch and to the summary."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for each in lines:
        if each["event"] == "epoch":
            change(each)
    (path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return RunData.read(path)


def phases(**shares):
    """A change: the phases of an epoch of two seconds."""

    def change(record):
        record["seconds"] = 2.0
        record["phases"] = {name: {"mean": 2 * share, "max": 2 * share} for name, share in shares.items()}

    return change


def test_what_was_reached_is_said_first(tmp_path):
    found = verdict(RunData.read(make_run(tmp_path / "run")))
    assert "Accuracy val 0.7853" in found.reached
    assert "epoch 5" in found.reached
    assert "4 ranks" in found.reached


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"gather": 0.6, "compute": 0.4}, "60.0 % of an epoch is spent on remote rows"),
        ({"wait": 0.5, "compute": 0.5}, "Ranks wait for 50.0 % of an epoch"),
        ({"reduce": 0.5, "compute": 0.5}, "larger --batch-size"),
        ({"sample": 0.5, "compute": 0.5}, "draws neighbours"),
        ({"checkpoint": 0.2, "compute": 0.8}, "longer --checkpoint-every"),
    ],
)
def test_where_the_time_went_gives_advice(tmp_path, shares, words):
    path = make_run(tmp_path / "run", by_rank=False)
    found = verdict(changed(path, phases(**shares)))
    assert any(words in each for each in found.advice)
    assert found.light == FAIR


def test_no_better_than_one_answer_is_bad(tmp_path):
    path = make_run(tmp_path / "run", finished=False)
    found = verdict(changed(path, lambda each: each.update(accuracy={"val": 0.1, "test": 0.1})))
    assert found.light == BAD
    assert "learned nothing useful" in found.advice[0]


def test_an_uneven_rank_is_named(tmp_path):
    def uneven(record):
        record["by_rank"]["phases"] = {"compute": [4.0, 1.0, 1.0, 1.0]}

    found = verdict(changed(make_run(tmp_path / "run"), uneven))
    assert any("partition --balance" in each for each in found.advice)


def test_a_failed_run_says_why(tmp_path):
    path = make_run(tmp_path / "run", finished=False)
    record_failure(path, "rank 1 was killed")
    found = verdict(RunData.read(path))
    assert found.light == BAD
    assert "rank 1 was killed" in found.reached
