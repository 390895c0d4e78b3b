"""jobs/bench: scripts measure small graphs; the READMEs and the settings of ruff list all of them."""

import json
import subprocess
import sys
import tomllib
from xml.etree import ElementTree

import pytest

from tests.support.launch import PROJECT, child_environment, run
from tests.support.scripts import run_here

BENCH = PROJECT / "jobs/bench"
SCRIPTS = sorted(path.name for path in BENCH.iterdir() if path.is_file() and not path.suffix)


def bench(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script of jobs/bench."""
    return run([sys.executable, str(BENCH / script), *map(str, arguments)], 100, child_environment(), PROJECT)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A small graph file."""
    path = tmp_path_factory.mktemp("graph") / "graph.h5"
    size = ["--vertices", "400", "--edges", "1500", "--features", "4"]
    run([sys.executable, "-m", "data_prep.cli", "synth", str(path), *size], 60, child_environment(), PROJECT)
    return path


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_documented(script):
    assert f"jobs/bench/{script} " in (BENCH / script).read_text()
    assert f"| `{script}` |" in (BENCH / "README.md").read_text()
    assert f"`{script}`" in (PROJECT / "jobs/README.md").read_text()


SMALL = {
    "aggregation": (["--destinations", 50, "--degree", 3, "--width", 16, "--repeats", 1], "| attention |"),
    "inference": (["GRAPH", "--hidden", 16, "--layers", 2, "--repeats", 1], "| leapmpi |"),
    "input-vertices": (["GRAPH", "--roots", 50, "--fanout", "3,3", "--batches", 1], "| labor-i |"),
    "partitioners": (["GRAPH", "--methods", "hash,ldg", "--parts", 2, "--seeds", 1], "ldg            geometric mean"),
    "remote-rows": (["GRAPH", "--methods", "no-such", "--parts", 2], "| `no-such` | leapmpi-prep: error: unknown"),
    "sampling": (
        ["--graph", "GRAPH", "--roots", 50, "--fanouts", "3,3", "--repeats", 1, "--steady", 10],
        "| 50, 3,3 |",
    ),
    "sparse-features": (["--columns", 30, "--rows", 40, "--sources", 20, "--repeats", 1], "50.0%"),
}


@pytest.mark.parametrize("script", SMALL)
def test_small_measurements_print_their_table(script, graph, monkeypatch, capsys):
    arguments, expected = SMALL[script]
    words = tuple(graph if word == "GRAPH" else word for word in arguments)
    job = run_here(BENCH / script, words, monkeypatch, capsys)
    assert job.returncode == 0, job.stderr
    assert expected in job.stdout


def test_ruff_reads_every_python_script():
    first_lines = {path: path.read_bytes()[:40] for path in (PROJECT / "jobs").rglob("*") if path.is_file()}
    scripts = {
        path.relative_to(PROJECT).as_posix()
        for path, line in first_lines.items()
        if not path.suffix and line.startswith(b"#!") and b"python" in line.partition(b"\n")[0]
    }
    assert set(tomllib.loads((PROJECT / ".ruff.toml").read_text())["extend-include"]) == scripts


def test_the_picture_of_a_forecast_is_drawn_by_its_bytes(tmp_path):
    def forecast(strategy, megabytes):
        pairs = [[0.0 if a == b else megabytes * 2**20 for b in range(4)] for a in range(4)]
        return {"strategy": strategy, "pairs": pairs, "epoch_sent": {"features": 12 * megabytes * 2**20}}

    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"forecasts": [forecast("pull:remote=raw", 40), forecast("leap<1>", 10)]}))
    first, second = bench("picture", plan).stdout, bench("picture", plan).stdout
    assert first == second
    words = [each.text for each in ElementTree.fromstring(first).iter() if each.text]
    assert {"480 MiB an epoch", "120 MiB an epoch", "leap<1>", "rank 3"} <= set(words)
    assert (first.count('stroke-width="26.00"'), first.count('stroke-width="6.50"')) == (6, 6)
    plan.write_text('{"forecasts": []}')
    refused = bench("picture", plan)
    assert refused.returncode == 1
    assert "give `leapmpi plan` --ranks 4" in refused.stderr
    assert "Traceback" not in refused.stderr
