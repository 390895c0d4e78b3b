"""jobs/bench/accuracy: known scores are reached on real graphs, on one rank and on two, by the same losses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from leapmpi import Config, load_run
from leapmpi.config.toml import read_toml
from tests.support.launch import PROJECT
from tests.support.scripts import run_here

ACCURACY = PROJECT / "jobs/bench/accuracy"
EXACT = ("--set", "train.dtype=float64")

pytestmark = [pytest.mark.long(60), pytest.mark.timeout(300)]


@pytest.fixture
def accuracy(monkeypatch, capsys):
    """A function that runs the script; what it trains runs in jobs of their own."""
    monkeypatch.setenv("LEAPMPI_ENV", sys.prefix)
    return lambda *arguments: run_here(ACCURACY, arguments, monkeypatch, capsys)


def rows_of(job: subprocess.CompletedProcess[str]) -> dict[int, dict]:
    """The rows of a job that prints JSON, by number of ranks."""
    assert job.returncode == 0, job.stderr
    return {row["ranks"]: row for row in json.loads(job.stdout)}


def losses(work: Path, graph: str, run_folder: str) -> np.ndarray:
    """The loss of every epoch of a run, float64[epochs]."""
    summary = load_run(work / "runs" / graph / run_folder).summary
    return np.array([epoch["loss"] for epoch in summary["epochs"]])


# The least score is the known one less 1.5 points, a margin for one seed; small batches reach it in few epochs.
@pytest.mark.parametrize(("graph", "variant", "least"), [("paperscape-1991-1996", "sage", 69.5)])
def test_one_rank_and_two_reach_the_known_score_by_the_same_losses(
    accuracy, real_graph, tmp_path, graph, variant, least
):
    epochs = 3
    choice = ("--variants", variant, "--seeds", 0, "--ranks", "1,2")
    settings = (*EXACT, "--set", f"train.epochs={epochs}", "--set", "train.batch_size=512", "--json")
    job = accuracy(graph, "--data", real_graph(graph).parent, "--work", tmp_path, *choice, *settings)
    rows = rows_of(job)
    assert rows[1]["mean"] >= least
    assert rows[2]["mean"] == pytest.approx(rows[1]["mean"], abs=0.1)
    one, two = (losses(tmp_path, graph, f"{variant}-{ranks}-ranks-seed-0") for ranks in (1, 2))
    assert len(one) == epochs
    np.testing.assert_allclose(two, one, rtol=1e-9)
    assert not list((tmp_path / "data").iterdir()), "prepared graphs are removed"


def test_finished_runs_are_kept_and_those_with_other_settings_refused(accuracy, real_graph, tmp_path):
    graph = "planetoid-cora"
    arguments = (graph, "--data", real_graph(graph).parent, "--work", tmp_path)
    # The run names the number of vertices of a full batch.
    choice = ("--variants", "gcn", "--seeds", 0, "--ranks", 1, "--set", "train.batch_size=full")
    first = accuracy(*arguments, *choice, "--set", "train.epochs=2")
    assert first.returncode == 0, first.stderr
    summary = tmp_path / "runs" / graph / "gcn-1-ranks-seed-0" / "summary.json"
    written = summary.stat().st_mtime_ns
    again = accuracy(*arguments, *choice, "--set", "train.epochs=2")
    assert again.stdout == first.stdout
    assert again.stdout.startswith("| graph | config | ranks | test |")
    assert summary.stat().st_mtime_ns == written
    other = accuracy(*arguments, *choice, "--set", "train.epochs=3")
    assert other.returncode == 3
    assert "was made with other settings" in other.stderr
    assert summary.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["planetoid-core"], "unknown graph 'planetoid-core'; did you mean 'planetoid-cora'?"),
        (["planetoid-cora"], "no planetoid-cora in"),
        ([], "holds none of the graphs that are known"),
        (["--ranks", "1,8"], "--ranks 8 needs as many parts; pass --parts 8"),
        (["--data", "/nowhere"], "no folder of real graphs at /nowhere"),
    ],
)
def test_wrong_input_gets_a_sentence_and_leaves_nothing(tmp_path, arguments, sentence, accuracy):
    (tmp_path / "empty").mkdir()
    places = ("--data", tmp_path / "empty", "--work", tmp_path / "work")
    job = accuracy(*places, *arguments)
    assert job.returncode in (2, 3)
    assert sentence in job.stderr
    assert job.stderr.startswith("accuracy: error: ")
    assert job.stderr.count("\n") == 1
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("arguments", [["--ranks", "0"], ["--seeds", "a"], ["--parts", "x"], []])
def test_arguments_that_are_no_numbers_or_missing_are_reported(tmp_path, arguments, accuracy):
    work = ["--work", tmp_path / "work"] if arguments else []
    job = accuracy(*work, *arguments)
    assert job.returncode == 2
    assert "Traceback" not in job.stderr
    assert f"error: argument {arguments[0]}" in job.stderr if arguments else "--work" in job.stderr


def test_an_unknown_variant_and_a_failing_run_are_reported(accuracy, real_graph, tmp_path):
    graph = "planetoid-cora"
    arguments = (graph, "--data", real_graph(graph).parent, "--work", tmp_path, "--seeds", 0, "--ranks", 1)
    unknown = accuracy(*arguments, "--variants", "gcm")
    assert (
        unknown.stderr == "accuracy: error: --variants: none of these graphs has a config 'gcm'; did you mean 'gcn'?\n"
    )
    failing = accuracy(*arguments, "--variants", "gcn", "--set", "train.lr=-1")
    assert failing.returncode != 0
    assert failing.stderr.startswith("accuracy: error: ")
    assert "train.lr" in failing.stderr
    assert "Traceback" not in failing.stderr
    assert failing.stderr.count("\n") == 1


def test_every_config_is_valid_and_has_known_figures_of_its_graph():
    folder = PROJECT / "jobs/configs/accuracy"
    graphs = read_toml(folder / "graphs.toml")
    known = {f"{graph}-{variant}" for graph, recipe in graphs.items() for variant in recipe["known"]}
    files = {path.stem: path for path in folder.glob("*.toml") if path.stem != "graphs"}
    assert set(files) == known
    for path in files.values():
        Config.from_values(read_toml(path), str(path))
