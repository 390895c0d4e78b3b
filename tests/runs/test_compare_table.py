"""`leapmpi compare`: figures of warm epochs, ratios to the first run."""

import json
import re
from pathlib import Path

import pytest

from leapmpi.cli.main import main
from leapmpi.config.schema import Config
from leapmpi.config.toml import to_toml
from leapmpi.runs.compare import row
from leapmpi.runs.run import Run
from tests.support.made_run import make_run


def epoch(seconds, local=0, remote=0, sent=0, loss=1.0, time_steps=1):
    return {
        "seconds": seconds,
        "loss": loss,
        "bytes": {"features": sent, "ids": 0},
        "rows": {"local": local, "remote": remote, "cached": 0},
        "time_steps": time_steps,
    }


FIELDS = {
    "banner": {"ranks": [{}]},
    "epoch": {"epoch": 0},
    "decision": {"about": "rates", "epoch": 0, "iteration": 0, "value": {}, "evidence": {}},
}
"""What records of metrics.jsonl hold besides their event."""


@pytest.fixture
def run(tmp_path):
    """A function that writes a finished run with these epochs."""

    def write(name, epochs, **more):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").touch()
        summary = {"schema": 1, "strategy": "leap", "ranks": 4, "metric": "accuracy", "epochs": epochs}
        summary["best"] = {"epoch": 0, "val": 0.5, "test": None}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary | more))
        return tmp_path / name

    return write


def test_the_first_epoch_is_left_out_where_there_are_more(run):
    many = row(Run(run("many", [epoch(100, 1, 1, 1), epoch(2, 10, 4, 30), epoch(4, 20, 6, 10), epoch(9, 60, 9, 20)])))
    assert (many["epoch_seconds"], many["rows"], many["remote_rows"], many["sent_bytes"]) == (4, 26, 6, 20)
    assert row(Run(run("one", [epoch(100, 1, 1, 1)])))["epoch_seconds"] == 100


def test_epochs_with_which_a_run_was_resumed_are_left_out(run):
    folder = run("resumed", [epoch(90), epoch(1), epoch(50), epoch(2), epoch(3)])
    events = ["start", "banner", "epoch", "epoch", "resumed", "banner", "epoch", "decision", "epoch", "epoch", "end"]
    records = [{**FIELDS.get(each, {}), "event": each} for each in events]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    assert row(Run(folder))["epoch_seconds"] == 2


def columns(text):
    """The blocks of a table as {heading: cells}; headings and cells are two blanks apart."""
    found = {}
    for block in text.split("\n\n"):
        heading, *rows = block.splitlines()
        begins = [match.start() for match in re.finditer(r"(?:(?<=  )|^)\S", heading)]
        for begin, end in zip(begins, [*begins[1:], None], strict=True):
            found[heading[begin:end].strip()] = [row[begin:end].strip() for row in rows]
    return found


def test_without_a_warm_epoch_there_is_no_ratio(run, capsys):
    cold, warm = run("cold", [epoch(100)]), run("warm", [epoch(9), epoch(1)])
    assert main(["compare", str(warm), str(cold), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["warm"], first["ratio"], second["warm"], second["ratio"]) == (True, 1, False, None)
    assert main(["compare", str(cold), str(warm)]) == 0
    shared, table, note = capsys.readouterr().out.split("\n\n")
    assert shared == "all: strategy leap, ranks 4, steps 1, metric accuracy"
    found = columns(table)
    assert found["s/epoch"] == ["100.000 cold", "1.000"]
    assert "ratio" not in found
    assert note.startswith("cold: only first epochs")


def test_what_is_no_finished_run_is_left_out_with_a_line(run, tmp_path, capsys):
    good = run("good", [epoch(9), epoch(1)])
    (tmp_path / "notes.txt").touch()
    (tmp_path / "quickstart").mkdir()
    failed = run("failed", [], status="failed", why="lost rank 1")
    damaged = run("damaged", [])
    folders = [tmp_path / "notes.txt", tmp_path / "quickstart", failed, damaged, good]
    assert main(["compare", *map(str, folders), "--json"]) == 0
    output, errors = capsys.readouterr()
    (shown,) = json.loads(output)
    assert (shown["run"], shown["ratio"]) == (str(good), 1)
    lines = errors.splitlines()
    assert [line.startswith(f"leapmpi: left out: {each}") for line, each in zip(lines, folders[:4], strict=True)]
    assert "failed: lost rank 1" in lines[2]
    assert main(["compare", *map(str, folders[:2])]) == 4
    assert capsys.readouterr().err.endswith("leapmpi: error: none of the 2 folders holds a run with a complete epoch\n")


def test_datasets_and_models_are_named(run, capsys):
    folders = []
    for name, data in (("a", "graphs/cora"), ("b", "cora"), ("c", "cora/"), ("d", "actor")):
        folders.append(str(run(name, [epoch(9), epoch(1)], model="gat", metric="roc-auc")))
        (Path(folders[-1]) / "config.toml").write_text(f'data = "{data}"\n')
    assert main(["compare", folders[0], folders[3]]) == 0
    shared, table = capsys.readouterr().out.split("\n\n")
    assert "model gat" in shared
    assert "metric roc-auc" in shared
    assert columns(table)["data"] == ["cora", "actor"]
    # Names alone do not tell these apart.
    assert main(["compare", *folders]) == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    assert columns(table)["data"] == ["graphs/cora", "cora", "cora/", "actor"]


def test_ratios_are_to_the_first_run(run, capsys):
    folders = [run("slow", [epoch(9), epoch(4, loss=0.25)]), run("fast", [epoch(9), epoch(1, time_steps=4)])]
    assert main(["compare", *map(str, folders), "--json"]) == 0
    slow, fast = json.loads(capsys.readouterr().out)
    assert (slow["ratio"], fast["ratio"]) == (1, 0.25)
    assert (slow["loss"], fast["time_steps"]) == (0.25, 4)
    assert (slow["val"], slow["test"], slow["metric"]) == (0.5, None, "accuracy")


def test_the_table_fits_in_80_columns_and_shows_what_is_missing(run, capsys, monkeypatch):
    """Columns that differ go on in a second block; those that agree stand once above."""
    monkeypatch.setenv("COLUMNS", "80")
    best = {"epoch": 1, "val": 0.61234, "test": 0.6}
    more = {"model": "a-model-with-a-name", "strategy": "owner", "ranks": 16, "best": best}
    first = run("a-run-with-a-long-name", [epoch(1), epoch(1.25, 1000, 24)])
    second = run("b", [epoch(1), epoch(5, 7, 123456789, 1 << 30, 0.5, 4) | {"evaluation_seconds": 2.0}], **more)
    assert main(["compare", str(first), str(second)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("all: metric accuracy\n\n")
    found = columns(text.split("\n\n", 1)[1].rstrip())
    assert found["run"] == ["a-run-with-a-long-name", "b"]
    assert found["rows"] == ["1,024", "123,456,796"]
    assert found["test"] == ["-", "0.6000"]
    assert found["ratio"] == ["1.00", "4.00"]
    assert found["MiB sent"] == ["0.0", "1024.0"]
    # A wide terminal has one block.
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["compare", str(first), str(second)]) == 0
    assert capsys.readouterr().out.count("\n\n") == 1


def test_a_single_run_is_a_list(run, capsys):
    assert main(["compare", str(run("alone", [epoch(9), epoch(1)]))]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (lines["run"], lines["s/epoch"], lines["val"]) == ("alone", "1.000", "0.5000")
    assert "test" not in lines


def test_the_time_of_evaluations_stands_beside(run, capsys):
    seconds = [epoch(9), *(epoch(2) | {"evaluation_seconds": each} for each in (0.5, 0.25, 1.0))]
    folder = run("scored", seconds)
    assert row(Run(folder))["evaluation_seconds"] == 0.5
    assert main(["compare", str(folder)]) == 0
    assert re.search(r"^eval s +0\.500$", capsys.readouterr().out, re.MULTILINE)


def test_runs_that_have_not_finished_are_compared_as_far_as_they_are(run, tmp_path, capsys):
    """`report` takes them too; one without an epoch is left out by both."""
    done, cut = run("done", [epoch(9), epoch(1)]), make_run(tmp_path / "cut", epochs=3, finished=False)
    early = make_run(tmp_path / "early", epochs=0, finished=False)
    assert main(["compare", str(done), str(cut), str(early), "--json"]) == 0
    found = capsys.readouterr()
    assert [each["run"] for each in json.loads(found.out)] == [str(done), str(cut)]
    assert json.loads(found.out)[1]["ended"] is False
    assert str(early) in found.err
    assert main(["compare", str(done), str(cut)]) == 0
    assert "cut (not finished)" in capsys.readouterr().out


def test_runs_that_differ_in_their_seeds_have_mean_and_deviation(run, capsys):
    for name, seed, rate, test in (("a", 1, 0.01, 0.5), ("b", 2, 0.01, 0.7), ("c", 1, 0.1, 0.1), ("d", 2, 0.1, 0.1)):
        folder = run(name, [epoch(1, 1)], best={"epoch": 0, "val": 0.4, "test": test})
        config = Config().replaced({"train.seed": seed, "train.lr": rate, "run.folder": name})
        (folder / "config.toml").write_text(to_toml(config))
    alone = run("e", [epoch(1, 1)])
    folders = [str(alone.parent / name) for name in "abcde"]
    assert main(["compare", *folders]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = lines.index("mean and deviation over seeds")
    assert [each.split() for each in lines[begin + 2 :]] == [
        ["train.lr=0.01", "2", "accuracy", "0.4000", "±", "0.0000", "0.6000", "±", "0.1414"],
        ["train.lr=0.1", "2", "accuracy", "0.4000", "±", "0.0000", "0.1000", "±", "0.0000"],
    ]
    assert main(["compare", str(alone.parent)]) == 0
    assert capsys.readouterr().out.splitlines()[begin:] == lines[begin:]
    assert main(["compare", *folders[:2], "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_real_runs_compare(finished_run, capsys):
    assert main(["compare", str(finished_run.path), str(finished_run.path)]) == 0
    found = columns(capsys.readouterr().out.split("\n\n")[1].rstrip())
    assert found["run"] == [finished_run.path.name] * 2
    assert found["ratio"] == ["1.00", "1.00"]
