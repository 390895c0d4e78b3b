"""What a finished run leaves: summary.json as documented, one record per event, one line per epoch, nothing else."""

import io
import json
import re
from datetime import datetime, timedelta

import numpy as np
import pytest

from leapmpi.cli.main import main
from leapmpi.comm.byte_counters import KINDS, ROWS
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.nn.parameters import digest
from leapmpi.runs import progress_line
from leapmpi.runs.run import load_run
from leapmpi.session import session
from leapmpi.system.phase_timers import PHASES


def test_the_folder_holds_these_files(finished_run):
    names = {
        "config.toml",
        "metrics.jsonl",
        "summary.json",
        "log.txt",
        "weights-final.h5",
        "weights-best.h5",
        "checkpoint",
    }
    assert {path.name for path in finished_run.path.iterdir()} == names


def test_summary(finished_run, small_data):
    summary = json.loads((finished_run.path / "summary.json").read_text())
    assert summary["schema"] == 2
    assert summary["strategy"] == "leap"
    assert summary["ranks"] == 1
    assert summary["graph_uuid"] == open_dataset(small_data).graph_uuid
    assert summary["metric"] == "accuracy"
    assert 0 < sum(epoch["seconds"] for epoch in summary["epochs"]) < summary["seconds"] < 600
    assert len(summary["peak_memory_bytes"]) == 1
    assert 2**20 < summary["peak_memory_bytes"][0] < 2**40
    assert summary["parameters_digest"] == digest(finished_run.weights("final"))
    assert [epoch["epoch"] for epoch in summary["epochs"]] == [1, 2, 3]
    best = max(summary["epochs"], key=lambda epoch: epoch["accuracy"]["val"])
    assert summary["best"] == {"epoch": best["epoch"], **best["accuracy"]}


def test_every_epoch_of_the_summary(finished_run):
    losses = [epoch["loss"] for epoch in finished_run.summary["epochs"]]
    assert losses[-1] < losses[0]
    for epoch in finished_run.summary["epochs"]:
        assert set(epoch["accuracy"]) == {"val", "test"}
        assert all(0 <= score <= 1 for score in epoch["accuracy"].values())
        assert set(epoch["phases"]) == set(PHASES)
        assert all(0 <= phase["mean"] <= phase["max"] <= epoch["seconds"] for phase in epoch["phases"].values())
        spent = sum(phase["mean"] for phase in epoch["phases"].values())
        assert spent == pytest.approx(epoch["seconds"], rel=1e-9)
        assert epoch["bytes"] == dict.fromkeys(KINDS, 0)
        assert set(epoch["rows"]) == set(ROWS)
        assert epoch["rows"]["local"] > 0 == epoch["rows"]["remote"] == epoch["rows"]["cached"]
        assert epoch["time_steps"] == 1
        assert "losses" not in epoch


def test_one_record_per_event(finished_run):
    records = finished_run.metrics()
    assert [record["event"] for record in records] == ["start", "banner", "epoch", "epoch", "epoch", "end"]
    assert {record["schema"] for record in records} == {2}
    times = [datetime.fromisoformat(record["time"]) for record in records]
    assert times == sorted(times)
    assert {time.utcoffset() for time in times} == {timedelta(0)}
    for record, epoch in zip(records[2:-1], finished_run.summary["epochs"], strict=True):
        assert {key: record[key] for key in epoch} == epoch
        # The loss of the epoch is the mean over roots: 65 training vertices in batches of 32, 32 and 1.
        assert len(record["losses"]) == 3
        assert epoch["loss"] == pytest.approx((32 * record["losses"][0] + 32 * record["losses"][1] + record["losses"][2]) / 65)  # fmt: skip  # noqa: E501


EPOCH = r"epoch \d/4  loss \d\.\d{3}(  val \d\.\d{3}  test \d\.\d{3})?  \d+\.\d\d s"


def test_one_line_for_people_per_epoch_here_and_in_the_log(small_data, tmp_path, capsys):
    arguments = ["--run", str(tmp_path / "run"), "--epochs", "4", "--eval-every", "3"]
    assert main(["train", str(small_data), *arguments]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    lines = output.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["data", "ranks", "model", "run"]
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert [line.split()[1] for line in epochs] == ["1/4", "2/4", "3/4", "4/4"]
    assert [bool(re.fullmatch(EPOCH, line)[1]) for line in epochs] == [False, False, True, True]
    (baseline,) = (line for line in lines if line.startswith("constant baseline"))
    assert lines.index(baseline) == lines.index(epochs[2]) + 1
    # But for paths and commands, which stay whole, all fits 80 columns.
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line and str(small_data) not in line)

    # The log has the same lines, and between them the details.
    logged = (tmp_path / "run" / "log.txt").read_text().splitlines()
    shown = [re.sub(r"^[\d-]+ [\d:,]+ INFO ", "", line) for line in logged if " INFO " in line]
    assert shown == lines
    details = "\n".join(line for line in logged if " DEBUG " in line)
    assert re.search(r"epoch 3/4  loss \d\.\d{4}  accuracy val .* s, evaluation \d+\.\d\d s  remote rows 0%", details)
    assert "plan: strategy leap" in details


def test_verbose_shows_what_the_log_holds(small_data, tmp_path, capsys):
    assert main(["train", str(small_data), "--run", str(tmp_path / "run"), "--epochs", "1", "--verbose"]) == 0
    logged = (tmp_path / "run" / "log.txt").read_text().splitlines()
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"^[\d-]+ [\d:,]+ (INFO|DEBUG) ", "", line) for line in logged] == lines
    assert any(line.startswith("plan: ") for line in lines)


@pytest.mark.parametrize("level", ["warning", "error"])
def test_log_levels(small_data, tmp_path, capsys, level):
    arguments = ["--run", str(tmp_path / "run"), "--epochs", "2", "--log-level", level, "--eval-every", "0"]
    assert main(["train", str(small_data), *arguments]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "run" / "log.txt").read_text() == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("out", "variables", "coloured"), [
    (Terminal, {}, True), (Terminal, {"NO_COLOR": "1"}, False), (Terminal, {"TERM": "dumb"}, False),
    (io.StringIO, {}, False), (Terminal, {"OMPI_COMM_WORLD_SIZE": "1"}, False),
])  # fmt: skip
def test_a_terminal_has_colours_unless_they_are_unwanted(small_data, tmp_path, monkeypatch, out, variables, coloured):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", shown := out())
    assert main(["train", str(small_data), "--run", str(tmp_path / "run"), "--epochs", "1"]) == 0
    assert ("\x1b[" in shown.getvalue()) == coloured
    assert "\x1b[" not in (tmp_path / "run" / "log.txt").read_text()


def test_a_launcher_on_a_terminal_has_colours_and_a_bar(small_data, tmp_path, monkeypatch):
    """What this process writes to, here a pipe, does not matter: the launcher forwards it."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    monkeypatch.setattr(session, "terminal_of_launcher", lambda process: "/dev/null")
    monkeypatch.setattr(progress_line, "_ON_TERMINAL", 1e-9)
    monkeypatch.setattr("sys.stdout", shown := io.StringIO())
    assert main(["train", str(small_data), "--run", str(tmp_path / "run"), "--epochs", "1"]) == 0
    assert "\x1b[" in shown.getvalue()
    bars = re.findall(r"\repoch 1/1:[^\r]*", shown.getvalue())
    assert bars
    assert max(map(len, bars)) <= 80


def test_runs_without_a_name_are_numbered_by_day(small_data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["train", str(small_data), "--epochs", "1", "--log-level", "error"]) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert [re.fullmatch(r"\d{4}-\d\d-\d\d-(\d)", name)[1] for name in names] == ["1", "2"]
    assert capsys.readouterr().out == ""


def parameters(run):
    """The number of parameters of a finished run's model."""
    return sum(each.size for each in load_run(run).weights("final").values())


def test_a_run_of_models_that_differ_names_those_that_are_trained(small_data, tmp_path, capsys):
    varied = ["--vary", "model.name=gcn,gat", "--vary", "model.residual=no,yes"]
    arguments = ["--run", str(tmp_path / "run"), "--epochs", "1", "--hidden", "16", "--verbose", *varied]
    assert main(["train", str(small_data), *arguments]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["model"] == "gcn and gat"
    gcn, more, *gat = (f"{parameters(tmp_path / 'run' / f'model-0{number}'):,}" for number in range(4))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("plan: "))
    assert line.endswith(f"; models gcn {gcn} to {more} and gat {gat[0]} to {gat[1]} parameters (float32)")


def test_parameters_of_models_of_one_name_are_a_range(small_data, tmp_path, capsys):
    varied = ["--vary", "model.hidden=4,16,8"]
    arguments = ["--run", str(tmp_path / "run"), "--epochs", "1", "--verbose", *varied]
    assert main(["train", str(small_data), *arguments]) == 0
    counts = [parameters(tmp_path / "run" / folder) for folder in ("model-00", "model-01")]
    assert f"; models sage {counts[0]:,} to {counts[1]:,} parameters (float32)" in capsys.readouterr().out


def test_a_trivial_score_and_the_time_stand_beside_the_first_evaluation(small_data, finished_run):
    dataset, (first, *others) = open_dataset(small_data), finished_run.summary["epochs"]
    labels = np.concatenate([dataset.part(part).known_labels for part in range(dataset.parts)])
    counts = {name: np.bincount(labels[getattr(dataset.splits, name)]) for name in ("val", "test")}
    of = {name: each.max() / each.sum() for name, each in counts.items()}
    assert first["trivial"] == {"answer": "most frequent class", **of}
    assert not any("trivial" in each for each in others)


def test_a_model_that_learned_nothing_is_seen(small_data, tmp_path, capsys):
    arguments = ["--run", str(tmp_path / "run"), "--epochs", "1", "--hidden", "4", "--dropout", "0", "--lr", "1e-30"]
    assert main(["train", str(small_data), *arguments, "--model-seed", "3"]) == 0
    first = load_run(tmp_path / "run").summary["epochs"][0]
    worse = first["accuracy"]["val"] <= first["trivial"]["val"]
    shown = " ".join(capsys.readouterr().out.split())
    assert ("learning: bad. " in shown.lower()) == worse
    assert ("No better than a constant prediction on " in shown) == worse
    assert "Speed: " in shown
    assert " in all: every epoch is one batch; try --epochs 100 or a smaller --batch-size epoch" in shown


IGNORED = [
    (["--model", "deepgcn", "--model-option", "aggregate=sum", "--model-option", "temperature=2"],
     ["--model-option temperature=2 is ignored: aggregate=sum has no temperature"]),
    (["--negatives-per-edge", "3", "--scorer", "mlp"],
     ["--scorer is ignored: only tasks on edges read it",
      "--negatives-per-edge is ignored: only tasks on edges read it"]),
    (["--task", "link", "--fanout", "5", "--hidden", "8", "--scorer", "mlp"], []),
    (["--momentum", "0.9"], ["--momentum is ignored: only --optimizer sgd reads it"]),
    (["--momentum", "0.9", "--optimizer", "sgd", "--model", "gat", "--model-option", "heads=2"], []),
    (["--fanout", "5", "--hidden", "8"], ["--hidden is ignored: one fan-out makes a model of one layer, which has no"]),
    (["--merge", "balanced"], ["--merge is ignored: no time steps are merged"]),
    (["--vary", "model.name=gat,gatv2", "--vary", "model.options.heads=2,8"], []),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentences"), IGNORED)
def test_settings_that_cannot_act_are_told(arguments, sentences, small_data, tmp_path, capsys):
    words = ["--run", str(tmp_path / "run"), "--epochs", "1", "--hidden", "16", "--eval-every", "0", *arguments]
    assert main(["train", str(small_data), *words]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if " is ignored: " in line]
    assert len(told) == len(sentences)
    assert all(line.startswith(sentence) for line, sentence in zip(told, sentences, strict=True))


def test_what_is_not_checked_is_told_and_recorded(small_data, finished_run, tmp_path, capsys):
    arguments = ["--run", str(tmp_path / "run"), "--epochs", "1", "--verify", "none"]
    assert main(["train", str(small_data), *arguments]) == 0
    assert "--verify none: features are not checked, so that damaged or infinite ones" in capsys.readouterr().out
    assert load_run(tmp_path / "run").summary["verify"] == "none"
    assert finished_run.summary["verify"] == "auto"
