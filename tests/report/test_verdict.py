"""The verdict follows from records by fixed rules."""

import json
import re

import pytest

from leapmpi.report.learning_light import few_updates
from leapmpi.report.lights import BAD, FAIR, GOOD, UNKNOWN
from leapmpi.report.run_data import RunData
from leapmpi.report.sections.verdict import verdict
from leapmpi.runs.run_folder import record_failure
from tests.support.made_run import make_run


def changed(path, change):
    """The run in `path`, which has no summary, with `change` applied to the record of each epoch."""
    (path / "summary.json").unlink(missing_ok=True)
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


def scored(values, metric="accuracy", trivial=0.2):
    """A change: `values` of validation (or pairs of validation and test) by epoch, beside a baseline."""

    def change(record):
        value = values[record["epoch"] - 1]
        val, test = value if isinstance(value, tuple) else (value, value)
        record["accuracy"] = {"val": val, "test": test}
        if "trivial" in record:
            record["trivial"] = {"answer": "most frequent class", "val": trivial, "test": trivial}

    return change


def learning_of(tmp_path, values, trivial=0.2, **made):
    """The light of learning of a run with `values`."""
    settings = {"epochs": len(values), "iterations": 40, **made}
    return verdict(changed(make_run(tmp_path / "run", **settings), scored(values, trivial=trivial))).learning


def test_what_was_reached_is_said_first(tmp_path):
    found = verdict(RunData.read(make_run(tmp_path / "run")))
    assert found.ended.startswith("5 of 10 epochs on 4 ranks, ")
    assert found.learning.sentence == (
        "Accuracy 0.785 on val and 0.775 on test of sampled neighbourhoods (most frequent class: 0.200 and 0.200), in "
        "epoch 5 of 5."
    )
    assert found.learning.level == GOOD


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
    assert any(words in each for each in found.speed.advice)
    assert found.speed.level == FAIR
    assert found.learning.level == GOOD


@pytest.mark.parametrize(("remote", "gradients", "offered"), [(50, 0, True), (0, 0, False), (50, 800, False)])
def test_copies_of_rows_are_offered_where_they_can_serve(tmp_path, remote, gradients, offered):
    def change(record):
        phases(exchange=0.6, compute=0.4)(record)
        record |= {"remote": "raw", "rows": {"local": 50, "remote": remote}, "prefetch": 0}
        record["bytes"]["row gradients"] = gradients
        record.pop("cache", None)

    (advice,) = verdict(changed(make_run(tmp_path / "run", by_rank=False), change)).speed.advice[:1]
    assert ("--cache 0.05" in advice, "--prefetch 1" in advice) == (offered, offered)


@pytest.mark.parametrize(
    ("values", "level", "words"),
    [
        ([0.1] * 8, BAD, "on val and test: accuracy 0.100 and 0.100, and most frequent class 0.200 and 0.200."),
        ([(0.5, 0.5), *[(0.6, 0.19)] * 7], BAD, "No better than a constant prediction on test"),
        ([0.22] * 8, FAIR, "Little better than a constant prediction"),
        ([0.3, 0.4, 0.5, 0.6, 0.7, 0.8], FAIR, "still rose at the end: more --epochs"),
        ([0.5, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55], FAIR, "Over-fitting: the validation score was best in epoch 2 of 7"),
        ([0.5, 0.8, 0.799, 0.8, 0.799, 0.8, 0.799, 0.799], GOOD, "--early-stop 3"),
        ([0.5, 0.7, 0.76, 0.79, 0.799, 0.7995, 0.8, 0.8001], GOOD, "The last epoch was the best"),
    ],
)
def test_learning_is_judged_by_baselines_and_the_curve(tmp_path, values, level, words):
    found = learning_of(tmp_path, values)
    assert found.level == level
    assert any(words in each for each in found.advice), found.advice


def test_a_higher_score_is_never_judged_worse_for_the_sake_of_speed(tmp_path):
    path = make_run(tmp_path / "run", epochs=6, iterations=40, by_rank=False)
    found = verdict(changed(path, lambda each: (scored([0.8] * 6)(each), phases(wait=0.9, compute=0.1)(each))))
    assert (found.learning.level, found.speed.level, found.level) == (GOOD, FAIR, FAIR)


def test_errors_are_better_when_lower(tmp_path):
    made = {"evaluate.metric": "mse"}
    assert learning_of(tmp_path / "a", [0.5, 0.3, 0.21, 0.2, 0.2], trivial=1.0, **made).level == GOOD
    assert learning_of(tmp_path / "b", [1.5, 1.3, 1.2, 1.2, 1.2], trivial=1.0, **made).level == BAD


def test_few_updates_are_noticed_unless_the_scores_have_settled(tmp_path):
    few = learning_of(tmp_path / "few", [0.3, 0.7], iterations=1)
    assert few.level == FAIR
    assert "Only 2 updates in all: every epoch is one batch; try --epochs 100 or a smaller --batch-size." in few.advice
    settled = learning_of(tmp_path / "settled", [0.3, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7], iterations=1)
    assert settled.level == GOOD


def test_a_sentence_warns_of_few_updates_before_they_start():
    assert few_updates(10, 1).startswith("10 updates in all: every epoch is one batch; try --epochs 100 or a smaller ")
    assert few_updates(3, 7) == "21 updates in all: an epoch has 7 batches; try --epochs 20 or a smaller --batch-size"
    assert few_updates(10, 1, whole_batch=True).endswith("try --epochs 100")
    assert few_updates(10, 10) == few_updates(0, 5) == ""


def test_without_scores_it_is_unknown_whether_it_learned(tmp_path):
    found = learning_of(tmp_path, [None] * 3)
    assert found.level == UNKNOWN
    assert "unknown whether the model learned" in found.sentence


def test_exact_scores_take_the_place_of_sampled_ones(tmp_path):
    path = make_run(tmp_path / "run")
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"exact": {"val": 0.81, "test": 0.19}}))
    found = verdict(RunData.read(path)).learning
    assert found.sentence.startswith(
        "Exact accuracy 0.810 on val and 0.190 on test (most frequent class: 0.200 and 0.200)"
    )
    assert found.level == BAD


def test_scores_of_several_models_are_those_of_the_best(tmp_path):
    path = make_run(tmp_path / "run")
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"models": [{}, {}, {}]}))
    assert verdict(RunData.read(path)).learning.sentence.endswith("in epoch 5 of 5, by the best of 3 models.")


def test_shares_of_an_epoch_add_up(tmp_path):
    path = make_run(tmp_path / "run", by_rank=False)
    change = phases(compute=0.3, wait=0.2, sample=0.2, gather=0.1, reduce=0.1, plan=0.05, load=0.05)
    sentence = verdict(changed(path, change)).speed.sentence
    assert sum(map(float, re.findall(r"([0-9.]+) %[,;.]", sentence.partition(";")[0] + "."))) == pytest.approx(100)
    assert "other 30.0 %" in sentence


def test_a_single_epoch_is_called_cold(tmp_path):
    sentences = [verdict(RunData.read(make_run(tmp_path / str(n), epochs=n))).speed.sentence for n in (1, 2)]
    assert [each.partition(" takes")[0] for each in sentences] == ["A first (cold) epoch", "A warm epoch"]


def test_an_uneven_rank_is_named(tmp_path):
    def uneven(record):
        record["by_rank"]["phases"] = {"compute": [4.0, 1.0, 1.0, 1.0]}

    found = verdict(changed(make_run(tmp_path / "run"), uneven))
    assert any("partition --balance work" in each for each in found.speed.advice)


def test_a_failed_run_says_why(tmp_path):
    path = make_run(tmp_path / "run", finished=False)
    record_failure(path, "rank 1 was killed")
    found = verdict(RunData.read(path))
    assert found.level == BAD
    assert "rank 1 was killed" in found.ended


def test_the_end_of_training_has_a_line_for_each_light(tmp_path):
    (level, learned), (_, fast) = verdict(RunData.read(make_run(tmp_path / "run"))).lines()
    assert level == GOOD
    assert learned.startswith("Learning: good. Accuracy 0.785 on val")
    assert fast.startswith("Speed: ")
