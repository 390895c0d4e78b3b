"""Restart in one process: what a signal leaves, what is refused, what is put right, and that nothing else changes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leapmpi import Config, load_run, train
from leapmpi.cli.main import main
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.engine.engine import Engine
from leapmpi.errors import DataError, Interrupted, LeapmpiError, ResourceError, RunFolderError
from leapmpi.evaluation.outputs import Outputs
from leapmpi.job import run_training
from leapmpi.runs.checkpoint_folder import CheckpointFile, CheckpointFolder
from leapmpi.runs.compare import row
from leapmpi.runs.file_names import LOCK
from leapmpi.runs.run_lock import RunLock
from leapmpi.session import setup
from tests.support.file_size import largest_file
from tests.support.graphs import random_graph

pytestmark = pytest.mark.compiles

SETTINGS = {
    "model": {"hidden": 16},
    "train": {"epochs": 3, "batch_size": 32, "lr": 0.05},
    "run": {"threads": 1, "log_level": "error", "device": "cpu"},
}


def config(data, folder, **more) -> Config:
    return Config.from_values({**SETTINGS, "data": str(data)}).replaced({"run.folder": str(folder), **more})


@pytest.fixture(scope="module")
def whole(small_data, tmp_path_factory):
    """The run that nothing disturbs."""
    return train(config(small_data, tmp_path_factory.mktemp("whole") / "run"))


@pytest.fixture
def at_step(monkeypatch):
    """A function that has something happen before the step of one (epoch, iteration)."""
    genuine, wanted = Engine.forward_backward, {}

    def step(engine, minibatch):
        action = wanted.pop((minibatch.schedule.epoch, minibatch.schedule.iteration), None)
        if action:
            action()
        return genuine(engine, minibatch)

    monkeypatch.setattr(Engine, "forward_backward", step)
    return lambda epoch, iteration, action: wanted.update({(epoch, iteration): action})


def send(name="TERM"):
    os.kill(os.getpid(), signal.Signals["SIG" + name])


def stopped(chosen: Config, at_step, epoch=1, iteration=0):
    """The unfinished run of `chosen` after a signal."""
    at_step(epoch, iteration, send)
    with pytest.raises(Interrupted) as caught:
        train(chosen)
    assert caught.value.exit_code == 75
    return load_run(chosen.run.folder)


def checkpoints(run) -> list[str]:
    return CheckpointFolder(run.path).names()


def epochs(run) -> list[dict]:
    return [record for record in run.metrics() if record["event"] == "epoch"]


def without_clocks(record: dict) -> dict:
    timed = ("time", "seconds", "core_seconds", "evaluation_seconds", "phases")
    return {key: value for key, value in record.items() if key not in timed}


def assert_same(run, whole, keeps_end=True):
    """Weights, losses, counts and scores of `run` are those of `whole`, to the last bit."""
    for which in ("final", "best"):
        ours, theirs = run.weights(which), whole.weights(which)
        assert {name: array.tobytes() for name, array in ours.items()} == {
            name: array.tobytes() for name, array in theirs.items()
        }
    assert [without_clocks(each) for each in epochs(run)] == [without_clocks(each) for each in epochs(whole)]
    assert run.summary["best"] == whole.summary["best"]
    assert run.summary["parameters_digest"] == whole.summary["parameters_digest"]
    assert row(run)["loss"] == row(whole)["loss"]
    if keeps_end:
        assert checkpoints(run) == end_of(len(epochs(run)))


@pytest.mark.parametrize("vary", [False, True])
def test_the_best_weights_so_far_serve_while_a_run_is_not_finished(small_data, monkeypatch, tmp_path, capsys, vary):
    more = {"strategy.vary": "model.seed=1,2"} if vary else {}
    genuine = run_training.Trainer.train_epoch

    def train_epoch(trainer, epoch):
        if epoch == 2:
            send()
        return genuine(trainer, epoch)

    monkeypatch.setattr(run_training.Trainer, "train_epoch", train_epoch)
    with pytest.raises(Interrupted):
        train(config(small_data, tmp_path / "run", **more))
    run = load_run(tmp_path / "run")
    model = ["--model", "1"] if vary else []
    assert main(["evaluate", str(small_data), str(run.path), *model, "--log-level", "error"]) == 0
    scored = [each["models"][1] if vary else each for each in epochs(run)]
    best = max(scored, key=lambda each: each["val"] if vary else each["accuracy"]["val"])
    best = best if vary else best["accuracy"]
    assert "best weights so far (epoch " in (printed := capsys.readouterr().out)
    assert f"accuracy val {best['val']:.4f} test {best['test']:.4f}\n" in printed
    out = tmp_path / "p.npy"
    assert main(["predict", str(small_data), str(run.path), *model, "--out", str(out), "--log-level", "error"]) == 0
    assert out.exists()
    pytest.importorskip("safetensors")
    assert main(["export", str(run.path), str(tmp_path / "w.safetensors"), *model]) == 0

    # What is not there yet is named with the command that makes it.
    assert main(["evaluate", str(small_data), str(run.path), *model, "--weights", "final"]) != 0
    assert "it is written when the run ends, and leapmpi train --run " in capsys.readouterr().err
    assert main(["compare", str(run.path)]) == 0
    assert "not finished" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["TERM", "USR2", "INT"])
def test_a_signal_in_mid_epoch_is_made_good_by_the_next_start(name, small_data, whole, at_step, tmp_path, capsys):
    arguments = ["train", str(small_data), "--run", str(tmp_path / "run"), "--epochs", "3", "--hidden", "16"]
    arguments += ["--batch-size", "32", "--lr", "0.05", "--threads", "1", "--log-level", "warning", "--device", "cpu"]
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)}
    at_step(1, 0, lambda: send(name))
    assert main(arguments) == 75
    assert {each: signal.getsignal(each) for each in before} == before
    run = load_run(tmp_path / "run")
    why = "interrupted" if name == "INT" else f"SIG{name} on rank 0"
    said = f"{why}: training stopped in epoch 2, after iteration 2 of 3; a checkpoint was written, the same command"
    assert f"leapmpi: {said} with --run {run.path} resumes it\n" == capsys.readouterr().err
    assert run.failure["status"] == "interrupted"
    assert said in run.failure["why"]
    assert not run.finished
    assert main(arguments) == 0
    assert_same(run, whole)
    (resumed,) = (record for record in run.metrics() if record["event"] == "resumed")
    assert (resumed["epoch"], resumed["iteration"], resumed["after"]["status"]) == (2, 2, "interrupted")
    assert load_run(run.path).summary["restarts"] == 1


def test_core_seconds_of_a_resumed_epoch_are_those_of_all_its_starts(small_data, at_step, tmp_path):
    spent = 1.5

    def work_and_stop():
        until = time.process_time() + spent
        while time.process_time() < until:
            pass
        send()

    chosen = config(small_data, tmp_path / "run")
    at_step(1, 0, work_and_stop)
    with pytest.raises(Interrupted):
        train(chosen)
    assert epochs(train(chosen))[1]["core_seconds"] >= spent


def test_a_signal_in_the_evaluation_and_another_later(small_data, whole, at_step, monkeypatch, tmp_path):
    genuine, sent = Outputs.batch, []

    def logits(evaluator, *arguments):
        if evaluator.ctx.phases.epoch == 1 and not sent:
            sent.append(send())
        return genuine(evaluator, *arguments)

    monkeypatch.setattr(Outputs, "batch", logits)
    chosen = config(small_data, tmp_path / "run")
    with pytest.raises(Interrupted):
        train(chosen)
    run = load_run(tmp_path / "run")
    assert checkpoints(run)[-1] == "epoch-000001-iteration-000000003"
    assert len(epochs(run)) == 1
    stopped(chosen, at_step, 2, 0)
    assert_same(train(chosen), whole)
    assert load_run(run.path).summary["restarts"] == 2


def test_while_loading_a_signal_ends_the_job_at_once(small_data, monkeypatch, tmp_path):
    monkeypatch.setattr(setup, "verify", lambda *arguments, **keywords: send("USR2"))
    with pytest.raises(Interrupted, match="SIGUSR2 ended the job") as caught:
        train(config(small_data, tmp_path / "run"))
    assert caught.value.exit_code == 75
    assert not (tmp_path / "run").exists()


def test_a_second_signal_ends_the_job_at_once(small_data, at_step, monkeypatch, tmp_path):
    monkeypatch.setattr("leapmpi.fault_tolerance.stop_signals._SAME_EVENT", 0.0)
    at_step(1, 0, lambda: [send(), send()])
    with pytest.raises(Interrupted, match="a second signal, SIGTERM") as caught:
        train(config(small_data, tmp_path / "run"))
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert checkpoints(load_run(tmp_path / "run")) == ["epoch-000000-iteration-000000000"]


def test_the_end_of_the_job_is_a_reason_to_stop(small_data, monkeypatch, tmp_path):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3))
    with pytest.raises(Interrupted, match="the job's time is running out"):
        train(config(small_data, tmp_path / "run", **{"train.epochs": 10**6, "evaluate.every": 0}))
    assert checkpoints(load_run(tmp_path / "run"))


def test_checkpoints_come_when_due_and_old_ones_go(small_data, at_step, tmp_path):
    every = {"run.checkpoint_every": "2"}
    run = stopped(config(small_data, tmp_path / "a", **every), at_step, 2, 1)
    names = [f"epoch-{epoch:06d}-iteration-{iteration:09d}" for epoch, iteration in ((2, 2), (2, 3))]
    assert checkpoints(run) == names
    run = stopped(config(small_data, tmp_path / "b", **{"run.checkpoint_every": "0.00001m"}), at_step)
    assert checkpoints(run) == ["epoch-000001-iteration-000000001", "epoch-000001-iteration-000000002"]
    run = stopped(config(small_data, tmp_path / "c", **{"run.checkpoint_every": "0"}), at_step)
    assert checkpoints(run) == ["epoch-000001-iteration-000000002"]


def damage(run, name):
    path = run.path / "checkpoint" / name / "state.h5"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(small_data, whole, at_step, tmp_path, capsys):
    chosen = config(small_data, tmp_path / "run", **{"run.checkpoint_every": "2", "run.log_level": "warning"})
    run = stopped(chosen, at_step, 1, 2)
    newest, before = checkpoints(run)[::-1]
    damage(run, newest)
    capsys.readouterr()
    train(chosen)
    said = capsys.readouterr().out
    assert f"{newest}/state.h5" in said
    assert f"{before}, the one before, is used" in said
    assert_same(load_run(run.path), whole)


def test_without_a_sound_checkpoint_a_run_is_not_resumed(small_data, whole, at_step, tmp_path):
    chosen = config(small_data, tmp_path / "run")
    run = stopped(chosen, at_step)
    for name in checkpoints(run):
        damage(run, name)
    with pytest.raises(RunFolderError, match=r"checkpoints are all damaged .* or pass --overwrite"):
        train(chosen)
    assert_same(train(chosen.replaced({"run.overwrite": True})), whole)


def test_a_run_that_is_not_the_same_is_refused_with_all_differences(small_data, at_step, tmp_path):
    graph = random_graph(n=240, degree=6)
    graph = replace(graph, features=graph.features + np.float32(1))
    write_dataset(tmp_path / "other", graph, np.arange(240) % 4, 4, method="test", figures={}, seed=0)
    chosen = config(small_data, tmp_path / "run")
    run = stopped(chosen, at_step)
    kept = (run.path / "metrics.jsonl").read_bytes()
    changed = {"data": str(tmp_path / "other"), "model.hidden": 8, "sampling.fanout": "all,5", "train.epochs": 1}
    with pytest.raises(RunFolderError) as caught:
        train(chosen.replaced({**changed, "run.threads": 2}))
    for difference in (
        f"{tmp_path / 'other'} holds another graph",
        "model.hidden was 16, is 8",
        "sampling.fanout was 10,10, is all,5",
        "train.epochs was 3, is 1, but 1 epochs are done",
    ):
        assert difference in str(caught.value)
    assert "threads" not in str(caught.value)
    assert (run.path / "metrics.jsonl").read_bytes() == kept
    assert checkpoints(run)


def test_what_may_change_may(small_data, at_step, tmp_path):
    chosen = config(small_data, tmp_path / "run")
    stopped(chosen, at_step)
    moved = shutil.copytree(small_data, tmp_path / "moved")
    more = {"data": str(moved), "train.epochs": 4, "evaluate.every": 2, "run.threads": 2, "run.checkpoint_every": "5"}
    run = train(chosen.replaced(more))
    assert [each["epoch"] for each in epochs(run)] == [1, 2, 3, 4]
    assert run.config.train.epochs == 4
    longer = train(config(small_data, tmp_path / "longer", **{"train.epochs": 4}))
    assert run.summary["parameters_digest"] == longer.summary["parameters_digest"]


def test_what_was_recorded_after_the_checkpoint_is_not_recorded_twice(small_data, whole, at_step, tmp_path):
    run = stopped(config(small_data, tmp_path / "run"), at_step)
    with (run.path / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"event": "epoch", "epoch": 1}) + '\n{"event": "ep')
    assert_same(train(config(small_data, tmp_path / "run")), whole)


def test_metrics_that_were_lost_are_written_again(small_data, at_step, tmp_path):
    run = stopped(config(small_data, tmp_path / "run"), at_step)
    (run.path / "metrics.jsonl").unlink()
    run = train(config(small_data, tmp_path / "run"))
    assert [each["epoch"] for each in epochs(run)] == [1, 2, 3]


def test_a_disk_that_fills_up_costs_a_checkpoint_but_not_the_run(small_data, whole, at_step, tmp_path, capsys):
    chosen = config(small_data, tmp_path / "run", **{"run.checkpoint_every": "1", "run.log_level": "warning"})
    with ExitStack() as full_disk:
        at_step(0, 2, lambda: full_disk.enter_context(largest_file(7000)))
        at_step(1, 1, full_disk.close)
        run = stopped(chosen, at_step, 1, 0)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2, "one warning, and the count once a checkpoint could be written again"
    assert "no checkpoint could be written" in said[0]
    assert "the disk is full" in said[0]
    assert "training continues, the one of epoch-000000-iteration-000000002 stays" in said[0]
    assert said[1] == "warning: 2 checkpoints in a row could not be written, then one could"
    assert checkpoints(run)[-1] == "epoch-000001-iteration-000000002"
    assert sorted(os.listdir(run.path / "checkpoint")) == checkpoints(run)
    assert_same(train(chosen), whole)


def test_a_first_checkpoint_that_cannot_be_written_ends_the_job_before_it_trains(small_data, at_step, tmp_path):
    at_step(0, 1, lambda: pytest.fail("it trains"))
    with largest_file(7000), pytest.raises(ResourceError, match=r"checkpoint/.*: the disk is full"):
        train(config(small_data, tmp_path / "run"))
    assert "the disk is full" in json.loads((tmp_path / "run/summary.json").read_text())["why"]
    assert CheckpointFolder(tmp_path / "run").names() == []


def test_weights_of_the_end_that_cannot_be_written_fail_the_run(small_data, tmp_path):
    chosen = config(small_data, tmp_path / "run", **{"run.checkpoint_every": "0", "train.epochs": 1})
    with largest_file(5500), pytest.raises(ResourceError, match=r"weights-.*: the disk is full"):
        train(chosen)
    run = load_run(tmp_path / "run")
    assert [each["epoch"] for each in epochs(run)] == [1], "it writes no checkpoint, so it trained"
    assert "the disk is full" in run.failure["why"]


def test_a_checkpoint_folder_that_became_a_file_costs_checkpoints_but_not_the_run(
    small_data, whole, at_step, tmp_path, capsys
):
    chosen = config(small_data, tmp_path / "run", **{"run.checkpoint_every": "1", "run.log_level": "warning"})

    def replace_folder():
        shutil.rmtree(tmp_path / "run/checkpoint")
        (tmp_path / "run/checkpoint").write_text("mine")

    at_step(0, 1, replace_folder)
    assert_same(train(chosen), whole, keeps_end=False)
    assert (tmp_path / "run/checkpoint").read_text() == "mine"
    first, count, end = capsys.readouterr().out.splitlines()
    assert "no checkpoint of the end could be written" in end
    assert f"{tmp_path}/run/checkpoint is a file where the checkpoint folder should be; remove it" in first
    assert count == "warning: 8 checkpoints in a row could not be written, the last one among them"


def test_a_run_folder_that_vanishes_costs_one_warning_and_a_count(small_data, at_step, tmp_path, capsys):
    flags = ["--run", str(tmp_path / "run"), "--epochs", "3", "--batch-size", "32", "--checkpoint-every", "1"]
    at_step(0, 1, lambda: shutil.rmtree(tmp_path / "run"))
    assert main(["train", str(small_data), *flags, "--threads", "1", "--log-level", "warning"]) == 0
    said = capsys.readouterr()
    first, again, count = said.out.splitlines()
    assert "no checkpoint could be written" in first
    assert count == "warning: 8 checkpoints in a row could not be written, the last one among them"
    # What training has given is kept all the same.
    assert again == f"warning: the run folder {tmp_path}/run vanished; it was made again for its weights and epochs"
    assert said.err == ""
    run = load_run(tmp_path / "run")
    assert run.finished
    assert len(run.weights("final")) == len(run.weights("best"))
    assert [each["epoch"] for each in run.metrics() if each["event"] == "epoch"] == [1, 2, 3]


@pytest.mark.parametrize("keeps_times", [False, True])
def test_a_part_that_changes_under_the_job_is_named(small_data, at_step, tmp_path, capsys, keeps_times):
    part = shutil.copytree(small_data, tmp_path / "data") / "part-00001.h5"
    before = part.stat()

    def overwrite():
        with part.open("r+b") as file:
            file.write(b"\xff" * before.st_size)
        if keeps_times:
            os.utime(part, ns=(before.st_atime_ns, before.st_mtime_ns))

    at_step(0, 1, overwrite)
    flags = ["--run", str(tmp_path / "run"), "--batch-size", "32", "--epochs", "3", "--threads", "1"]
    assert main(["train", str(tmp_path / "data"), *flags, "--log-level", "error"]) == 3
    said = capsys.readouterr().err
    assert f"{part} changed while the job read it" in said
    assert ("its digests do not fit" in said) == keeps_times


@pytest.mark.parametrize("name", ["metrics.jsonl", "log.txt", "summary.json", "checkpoint"])
def test_a_pipe_in_a_run_folder_is_no_reason_to_wait(small_data, at_step, tmp_path, name):
    chosen = config(small_data, tmp_path / "run")
    run = stopped(chosen, at_step)
    (run.path / name).rename(tmp_path / "aside")
    os.mkfifo(run.path / name)
    with pytest.raises(LeapmpiError, match=r"pipe|finished run|without a checkpoint"):
        train(chosen)


def test_a_pipe_in_place_of_the_newest_checkpoint_is_passed_over(small_data, whole, at_step, tmp_path):
    chosen = config(small_data, tmp_path / "run", **{"run.checkpoint_every": "2"})
    run = stopped(chosen, at_step, 1, 2)
    state = run.path / "checkpoint" / checkpoints(run)[-1] / "state.h5"
    state.unlink()
    os.mkfifo(state)
    assert_same(train(chosen), whole)


def test_a_start_that_did_not_get_going_is_no_obstacle(small_data, whole, at_step, tmp_path):
    chosen = config(small_data, tmp_path / "run")
    run = stopped(chosen, at_step)
    (run.path / "config.toml").unlink()  # written last, when the run can be resumed
    (run.path / "checkpoint" / ".epoch-000000-iteration-000000000.partial").mkdir()
    assert_same(train(chosen), whole)


def test_a_checkpoint_file_is_read_whole_or_refused(tmp_path):
    """Every byte of a file in turn, changed: it reads as before, where the byte has no meaning, or is refused."""
    folder = CheckpointFolder(tmp_path)
    piece = CheckpointFile(
        {"a/b": np.arange(5.0), "empty": np.empty(0, np.float32)}, {"checkpoint": 1, "rank_pieces": 0}
    )
    folder.path.mkdir()
    folder.begin("epoch-000000-iteration-000000000")
    folder.finish("epoch-000000-iteration-000000000", piece)
    path = folder.path / "epoch-000000-iteration-000000000" / "state.h5"
    content, rng = path.read_bytes(), np.random.default_rng(5)
    for place in rng.integers(len(content), size=300):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << rng.integers(8))]) + content[place + 1 :])
        _, found, complaints = folder.newest()
        if complaints:
            assert found is None
            assert "Traceback" not in complaints[0]
        else:
            assert found.values == piece.values
            assert found.arrays["a/b"].tobytes() == piece.arrays["a/b"].tobytes()
    for size in (0, 8, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        assert folder.newest()[1] is None


def test_pieces_of_ranks_belong_to_one_checkpoint(tmp_path):
    folder, name = CheckpointFolder(tmp_path), "epoch-000000-iteration-000000003"
    for token in (1, 2):
        folder.begin(name)
        for rank in range(2):
            folder.write_rank(name, rank, CheckpointFile({"own": np.array([rank])}, {"checkpoint": token}))
        folder.finish(name, CheckpointFile({}, {"checkpoint": token, "rank_pieces": 2}))
        if token == 1:
            shutil.copy(folder.path / name / "rank-00001.h5", tmp_path / "stale.h5")
    found, state, _ = folder.newest()
    assert [folder.read_rank(found, rank, state).arrays["own"].tolist() for rank in range(2)] == [[0], [1]]
    shutil.copy(tmp_path / "stale.h5", folder.path / name / "rank-00001.h5")
    assert "belongs to another checkpoint" in folder.newest()[2][0]
    (folder.path / name / "rank-00001.h5").unlink()
    with pytest.raises(DataError, match="does not exist"):
        folder.read_rank(name, 1, state)
    assert Path(folder.path / name).is_dir()


def end_of(epochs) -> list[str]:
    return [f"epoch-{epochs:06d}-iteration-000000000"]


def test_a_finished_run_goes_on_by_more_epochs_to_the_bits_of_one_go(small_data, whole, tmp_path, capsys):
    run = train(config(small_data, tmp_path / "run", **{"train.epochs": 2}))
    assert checkpoints(run) == end_of(2)
    # Nothing but the folder and the number is named: all else is as the run had it.
    assert main(["train", "--run", str(run.path), "--epochs", "3", "--log-level", "info"]) == 0
    assert "the finished run of 2 epochs continues to epoch 3" in capsys.readouterr().out
    assert_same(load_run(run.path), whole)
    (resumed,) = (record for record in run.metrics() if record["event"] == "resumed")
    assert resumed["after"] == {"status": "finished"}
    assert [record["event"] for record in run.metrics()].count("end") == 1


def test_a_finished_run_is_left_as_it_is_where_it_does_not_go_on(small_data, tmp_path, capsys):
    chosen = config(small_data, tmp_path / "run", **{"train.epochs": 2})
    run = train(chosen)
    kept = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    more = chosen.replaced({"train.epochs": 4})
    for refused, why in (
        (chosen, "never overwritten; choose another --run folder, or continue it with more than its 2 --epochs"),
        (more.replaced({"model.hidden": 8}), "a finished run that was started otherwise: model.hidden was 16, is 8"),
    ):
        with pytest.raises(RunFolderError, match=why):
            train(refused)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == kept
    # The command line does not overwrite it either; from Python it is replaced.
    assert main(["train", "--run", str(run.path), "--epochs", "4", "--overwrite"]) != 0
    assert "or leave out --overwrite to continue it" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == kept
    damage(run, end_of(2)[0])
    with pytest.raises(RunFolderError, match=r"a finished run whose checkpoints are all damaged .* where --init"):
        train(more)
    # Runs of earlier versions have none.
    shutil.rmtree(run.path / "checkpoint")
    with pytest.raises(RunFolderError, match=r"no checkpoint of its end .* --init .*run starts from its weights"):
        train(more)
    assert load_run(run.path).finished


def test_a_run_that_goes_on_may_be_interrupted_again(small_data, at_step, tmp_path):
    chosen = config(small_data, tmp_path / "run", **{"train.epochs": 1})
    train(chosen)
    longer = chosen.replaced({"train.epochs": 3})
    run = stopped(longer, at_step)
    assert not run.finished
    assert train(longer).summary["restarts"] == 2


def test_an_end_that_cannot_be_written_is_a_warning(small_data, monkeypatch, tmp_path, capsys):
    genuine = CheckpointFolder.finish

    def finish(folder, name, state):
        if name in end_of(1):
            raise ResourceError("the disk is full")
        genuine(folder, name, state)

    monkeypatch.setattr(CheckpointFolder, "finish", finish)
    run = train(config(small_data, tmp_path / "run", **{"train.epochs": 1, "run.log_level": "warning"}))
    assert "no checkpoint of the end could be written (the disk is full)" in capsys.readouterr().out
    assert run.finished
    assert not checkpoints(run)


@pytest.mark.parametrize("which", ["best", "final"])
def test_first_weights_of_another_run(which, small_data, whole, tmp_path, capsys):
    source = whole.path if which == "best" else whole.path / "weights-final.h5"
    more = {"train.init": str(source), "train.epochs": 1, "train.lr": 1e-30, "run.log_level": "info"}
    run = train(config(small_data, tmp_path / "run", **more))
    for name, array in run.weights("final").items():
        np.testing.assert_allclose(array, whole.weights(which)[name], atol=1e-25)
    epoch = whole.summary["best"]["epoch"] if which == "best" else 3
    assert f"first weights: those of epoch {epoch} in {source}, " in capsys.readouterr().out
    banner = next(record for record in run.metrics() if record["event"] == "banner")
    assert banner["init"]["parameters"] == sum(array.size for array in whole.weights("best").values())


def test_first_weights_that_do_not_fit_are_refused_before_a_folder_is_made(small_data, whole, tmp_path):
    chosen = config(small_data, tmp_path / "run")
    for values, why in (
        ({"train.init": str(tmp_path)}, "is not a run folder"),
        ({"train.init": str(tmp_path / "none.h5")}, "no such weights file"),
        ({"train.init": str(whole.path), "model.hidden": 8}, "the weights belong to another model"),
        ({"train.init": str(whole.path), "model.name": "gcn"}, "the weights belong to another model"),
    ):
        with pytest.raises((DataError, RunFolderError), match=why):
            train(chosen.replaced(values))
    assert not (tmp_path / "run").exists()


def contents(folder):
    """Every file of `folder` with its bytes, but those that tell the time."""
    return {file.name: file.read_bytes() for file in folder.rglob("*.*") if file.is_file() and file.suffix != ".stamps"}


@pytest.mark.parametrize("flag", [(), ("--overwrite",)])
def test_a_second_start_in_a_run_folder_is_refused_and_changes_nothing(small_data, tmp_path, whole, at_step, flag):
    chosen, seen = config(small_data, tmp_path / "run"), []

    def start():
        before = contents(tmp_path / "run")
        words = [str(small_data), "--run", str(tmp_path / "run"), "--epochs", "3", "--device", "cpu", *flag]
        command = [sys.executable, "-m", "leapmpi", "train", *words]
        seen.append(subprocess.run(command, capture_output=True, text=True, timeout=120))
        assert contents(tmp_path / "run") == before

    at_step(1, 1, start)
    run = train(chosen)
    (second,) = seen
    assert second.returncode == 4
    (line,) = second.stderr.splitlines()
    start = f"leapmpi: error: {tmp_path / 'run'}: another start trains in this run folder: rank 0 of 1 on "
    assert line.startswith(f"{start}{os.uname().nodename}, process {os.getpid()}, since ")
    assert_same(run, whole)
    assert [each["epoch"] for each in run.metrics() if each["event"] == "epoch"] == [1, 2, 3]
    assert not (run.path / LOCK).exists()


def test_of_two_starts_in_a_folder_that_is_not_there_one_is_refused(small_data, tmp_path, at_step, monkeypatch):
    """Both pass the first check; the other one is faster to load."""
    chosen, real, other = config(small_data, tmp_path / "run"), run_training.build_trainer, RunLock(3)

    def while_loading(*arguments):
        trainer = real(*arguments)
        (tmp_path / "run").mkdir()
        other.take(tmp_path / "run")
        return trainer

    monkeypatch.setattr(run_training, "build_trainer", while_loading)
    with pytest.raises(RunFolderError, match="another start trains in this run folder: rank 0 of 3 on"):
        train(chosen)
    assert os.listdir(tmp_path / "run") == [LOCK]
    other.release()


def test_a_start_whose_folder_was_trained_in_meanwhile_does_not_begin_again(small_data, tmp_path, at_step, monkeypatch):
    chosen, real = config(small_data, tmp_path / "run"), run_training.build_trainer

    def while_loading(*arguments):
        monkeypatch.undo()
        shutil.copytree(tmp_path / "other", tmp_path / "run")
        return real(*arguments)

    stopped(config(small_data, tmp_path / "other"), at_step)
    before = contents(tmp_path / "other")
    monkeypatch.setattr(run_training, "build_trainer", while_loading)
    with pytest.raises(RunFolderError, match="another start trained in this run folder while this one loaded; start"):
        train(chosen)
    assert contents(tmp_path / "run") == before


def test_a_failed_start_gives_the_lock_back(small_data, tmp_path, at_step):
    stopped(config(small_data, tmp_path / "run"), at_step)
    with pytest.raises(RunFolderError, match="was started otherwise"):
        train(config(small_data, tmp_path / "run", **{"train.lr": 0.5}))
    assert not (tmp_path / "run" / LOCK).exists()
    train(config(small_data, tmp_path / "run"))
