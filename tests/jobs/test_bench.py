"""jobs/bench: scripts measure small graphs; the READMEs and the settings of ruff list all of them."""

import subprocess
import sys
import tomllib

import pytest

from tests.support.launch import PROJECT, child_environment, run

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
def test_small_measurements_print_their_table(script, graph):
    arguments, expected = SMALL[script]
    job = bench(script, *(graph if word == "GRAPH" else word for word in arguments))
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
