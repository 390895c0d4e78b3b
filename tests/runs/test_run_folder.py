"""The run folder: claimed once, never lost, complete at the end."""

import json
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePath

import pytest

from leapmpi.config.schema import Config
from leapmpi.errors import ResourceError, RunFolderError
from leapmpi.runs import file_names
from leapmpi.runs.run import Run, load_run
from leapmpi.runs.run_folder import check, claim, forget_end, record_failure, without_losses

TODAY = date(2031, 2, 3)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def unfinished(path="runs/a"):
    folder = claim(path, False)
    folder.start(Config())
    folder.record("start")
    return folder


def test_fresh_folders_are_numbered_by_day(here):
    names = [claim("", False, TODAY).path for _ in range(3)]
    assert [str(name) for name in names] == ["runs/2031-02-03-1", "runs/2031-02-03-2", "runs/2031-02-03-3"]
    assert all((here / name).is_dir() for name in names)


def test_a_named_folder_is_made_with_its_parents(here):
    assert claim("a/b/c", False).path.is_dir()
    claim("a/b/c", False)  # still empty


def test_config_records_and_summary_can_be_read_back():
    config = Config.from_values({"data": "x", "train.lr": 0.25})
    folder = claim("runs/a", False)
    folder.start(config)
    before = datetime.now(UTC)
    folder.record("epoch", epoch=0, loss=0.1 + 0.2)
    assert json.loads((folder.path / "metrics.jsonl").read_text())["loss"] == 0.1 + 0.2  # flushed at once
    folder.finish({"seconds": 1.5})
    run = load_run("runs/a")
    assert run.config == config
    assert run.summary["seconds"] == 1.5
    assert run.summary["schema"] == 2
    events = run.metrics()
    assert [event["event"] for event in events] == ["epoch", "end"]
    assert all(event["schema"] == 2 for event in events)
    assert abs(datetime.fromisoformat(events[0]["time"]) - before) < timedelta(seconds=60)


def test_a_last_record_cut_short_is_left_out():
    folder = unfinished()
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"event": "ep')
    assert [event["event"] for event in Run(folder.path).metrics()] == ["start"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_finished_run_is_never_overwritten(overwrite):
    unfinished().finish({})
    for function in (check, claim):
        with pytest.raises(RunFolderError, match="finished run"):
            function("runs/a", overwrite)
    assert load_run("runs/a").summary == {"schema": 2, "status": "finished"}


def test_an_unfinished_run_is_overwritten_only_on_request():
    folder = unfinished()
    (folder.path / "failure-rank-1.txt").write_text("old")
    (folder.path / "notes.txt").write_text("mine")
    for function in (check, claim):
        with pytest.raises(RunFolderError, match="--overwrite"):
            function("runs/a", False)
    check("runs/a", True)
    assert (folder.path / "config.toml").exists()
    claim("runs/a", True)
    assert os.listdir(folder.path) == ["notes.txt"]


def test_a_failed_run_says_why_and_may_be_run_again():
    folder = unfinished()
    assert record_failure(folder.path, "rank 1/2 on n7 was killed", rank=1, phase="gather", epoch=0)
    assert not record_failure(folder.path, "rank 0/2 on n7 was killed", rank=0), "the first rank that reports wins"
    run = load_run(folder.path)
    assert run.failure["why"] == "rank 1/2 on n7 was killed"
    assert (run.failure["rank"], run.failure["phase"], run.failure["epoch"]) == (1, "gather", 1)
    assert not run.finished
    with pytest.raises(
        RunFolderError, match=r"rank 1/2 on n7 was killed; correct the cause, then leapmpi train --run "
    ):
        _ = load_run(folder.path).summary
    assert sorted(os.listdir(folder.path)) == ["config.toml", "metrics.jsonl", "summary.json"]
    check("runs/a", True)
    forget_end(folder.path)
    assert load_run(folder.path).failure is None
    assert not (folder.path / "summary.json").exists()


def test_a_failure_never_replaces_the_summary_of_a_finished_run():
    folder = unfinished()
    folder.finish({"seconds": 1.5})
    assert not record_failure(folder.path, "late")
    forget_end(folder.path)
    assert load_run(folder.path).summary["seconds"] == 1.5


def test_a_run_folder_that_went_away_is_no_second_failure(here):
    assert not record_failure(here / "gone", "why")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_left_alone(here, overwrite):
    (here / "photos").mkdir()
    (here / "photos/cat.png").write_bytes(b"cat")
    for function in (check, claim):
        with pytest.raises(RunFolderError, match="holds no run"):
            function("photos", overwrite)
    assert os.listdir(here / "photos") == ["cat.png"]


@pytest.mark.parametrize("path", ["file", "file/below", "dangling"])
def test_what_cannot_become_a_folder_is_refused(here, path):
    (here / "file").write_text("text")
    (here / "dangling").symlink_to(here / "nowhere")
    for function in (check, claim):
        with pytest.raises(RunFolderError, match="folder"):
            function(path, False)


def test_checking_makes_nothing(here):
    check("a/b", False)
    check("", False)
    assert os.listdir(here) == []


def test_runs_without_a_config_or_summary_are_named(here):
    with pytest.raises(RunFolderError, match=r"config\.toml"):
        load_run(here)
    run = load_run(unfinished().path)
    with pytest.raises(RunFolderError, match=r"no summary\.json"):
        _ = run.summary
    (run.path / "summary.json").write_text("{")
    with pytest.raises(RunFolderError, match="damaged"):
        _ = run.summary


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_gets_a_sentence():
    folder = unfinished()
    folder._metrics.close()
    folder._metrics = open("/dev/full", "a")  # noqa: SIM115
    with pytest.raises(ResourceError, match="disk is full"):
        folder.record("epoch")


def test_every_file_of_a_run_folder_is_one_that_a_new_start_removes(tmp_path):
    values = [value for name, value in vars(file_names).items() if name.isupper() and isinstance(value, str)]
    values += [named(3) for named in (file_names.failure_file, file_names.stuck_file, file_names.timeline_file)]
    values += [file_names.weights_file("best"), file_names.model_folder(tmp_path, 3).name]
    for value in values:
        assert any(PurePath(value).match(pattern) for pattern in file_names.PATTERNS), value
    assert file_names.weights_file("final") == file_names.WEIGHTS_FINAL


def test_summaries_hold_no_losses_of_batches():
    assert without_losses([{"epoch": 0, "loss": 1.0, "losses": [1.0, 1.0]}, {"epoch": 1}]) == [
        {"epoch": 0, "loss": 1.0},
        {"epoch": 1},
    ]


def test_epochs_of_older_files_are_counted_from_one(tmp_path):
    best = {"epoch": 4, "val": 0.5, "test": None}
    old = {"schema": 1, "best": best, "models": [{"best": best}], "epochs": [{"epoch": 0, "losses": [1.5]}]}
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "summary.json").write_text(json.dumps(old))
    records = [{"event": "epoch", "epoch": 0, "schema": 1}, {"event": "epoch", "epoch": 2, "schema": 2}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    run = load_run(tmp_path)
    assert run.summary["best"]["epoch"] == run.summary["models"][0]["best"]["epoch"] == 5
    assert run.summary["epochs"] == [{"epoch": 1, "losses": [1.5]}]
    assert [(each["epoch"], each["schema"]) for each in run.metrics()] == [(1, 2), (2, 2)]
