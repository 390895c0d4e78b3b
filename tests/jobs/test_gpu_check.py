"""jobs/gpu/check: refuses in a sentence, and runs its paths on the CPU that stands in."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from tests.support.launch import PROJECT
from tests.support.scripts import run_here

SCRIPT = PROJECT / "jobs/gpu/check"
CHECK = [sys.executable, str(SCRIPT)]


@pytest.fixture
def run(monkeypatch, capfd):
    """A function that runs the check in this process, which serves as --python unless another is given."""
    return lambda *arguments: run_here(SCRIPT, ("--python", sys.executable, *arguments), monkeypatch, capfd)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_ends_with_a_sentence(tmp_path):
    job = subprocess.run([*CHECK, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert job.returncode == 1
    assert job.stderr.startswith("gpu-check: error: torch")
    assert job.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_paths_on_the_cpu_are_checked_and_the_page_says_so(tmp_path, run):
    sizes = ("--vertices", "500", "--edges", "3000", "--repeats", "1")
    job = run("--stand-in", "--out", str(tmp_path), "--parts", "draws,rows,sums", *sizes)
    assert job.returncode == 0, job.stderr
    page = json.loads((tmp_path / "gpu-check.json").read_text())
    assert page["stand_in"]
    assert page["goals"] == {}
    names = [each["name"] for each in page["checks"]]
    assert len(names) == 26
    assert names.count("draws of ladies") == 1
    assert all(each["passed"] for each in page["checks"])
    assert all(value > 0 for value in page["figures"].values())
    assert "No GPU took part" in (tmp_path / "gpu-check.md").read_text()
    assert [part for part, _, _ in page["times"]] == ["graph", "draws", "rows", "sums"]
    assert all(0 < took < most for _, took, most in page["times"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_where_there_is_a_gpu_that_no_torch_sees_an_environment_is_made(tmp_path):
    tool, old = tmp_path / "nvidia-smi", tmp_path / "old"
    for each in (tool, old):
        each.write_text("#!/bin/sh\nexit 1\n")
        each.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LEAPMPI_PYTHON": str(old)}
    command = [*CHECK, "--out", str(tmp_path / "out"), "--environment", str(tmp_path / "env")]
    job = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert job.returncode == 1
    first, last = job.stderr.splitlines()
    assert first.startswith("environment: error: no Python >= 3.11 found at LEAPMPI_PYTHON=")
    assert last.startswith("gpu-check: error: no environment could be made")
    assert not (tmp_path / "env/bin").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "draws,rays"], "'rays' is none of environment, draws, rows"),
        (["--python", "/nowhere/python"], "--python /nowhere/python: there is no such program"),
        (["--batch", "0"], "argument --batch: '0' is not a whole number from 1 on"),
        (["--fanout", "5,,3"], "argument --fanout: '' is not a whole number from 1 on"),
        (["--vertices", "3"], "no graph could be made; the line above says why"),
        (["--out", __file__], "File exists"),
    ],
)
def test_what_is_wrong_is_named(words, said, run):
    job = run("--stand-in", *words)
    assert job.returncode in (1, 2)
    assert job.stderr.splitlines()[-1].startswith("gpu-check: error: ")
    assert said in job.stderr.splitlines()[-1]
    assert "Traceback" not in job.stderr


def test_the_page_tells_of_two_ranks_and_of_one_iteration(tmp_path, run):
    sizes = ("--vertices", "500", "--edges", "3000", "--repeats", "1")
    job = run("--stand-in", "--out", str(tmp_path), "--parts", "environment,ranks,profile", *sizes)
    assert job.returncode == 0, job.stderr
    page = json.loads((tmp_path / "gpu-check.json").read_text())
    assert [each["name"] for each in page["checks"]] == ["loss of two ranks on one GPU, by staging"]
    assert page["facts"]["two ranks directly"].startswith("not run: MPI is not CUDA-aware")
    assert any(name.startswith("aten::") and number > 0 for name, number, _ in page["profile"])
    html = (tmp_path / "gpu-check.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert "No GPU took part" in html
    assert page["facts"]["MPI"] in html


def test_what_takes_too_long_is_interrupted(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    script = runpy.run_path(str(SCRIPT), run_name="check")
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(script["OutOfTime"], match="longer than 0 s"), script["limited"](0.2):
        script["ran"]([sys.executable, "-c", "import time; time.sleep(1000)"])
    assert signal.getsignal(signal.SIGALRM) is before


def test_all_ends_in_its_time_whatever_takes_long(tmp_path, run):
    # A graph that takes longer than there is time for, at any size.
    begun = time.time()
    job = run("--stand-in", "--out", str(tmp_path), "--minutes", "0.01", "--vertices", "4000000", "--edges", "90000000")
    assert job.returncode == 1
    assert "making an eighth of the graph took longer than" in job.stderr.splitlines()[-1]
    assert time.time() - begun < 60


def test_measurements_are_repeated_less_often_when_time_ends(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    measured = runpy.run_path(str(SCRIPT), run_name="check")["Check"].seconds
    of, calls = SimpleNamespace(repeats=9), []
    for left, times in ((-1.0, 2), (1000.0, 10)):
        check = SimpleNamespace(arguments=of, device=torch.device("cpu"), part_end=time.time() + left)
        calls.clear()
        assert measured(check, lambda: calls.append(0)) >= 0
        assert len(calls) == times


def test_goals_that_are_missed_are_named(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import check_page

    figures = {"gather by UVA / copy to the device": 0.41, "epoch, cuda: s": 0.5}
    page = {"ran_on": "a GPU", "stand_in": False, "shrunk": "", "versions": {"torch": "2", "cuda": "13"}, "sizes": {},
            "facts": {}, "checks": [], "figures": figures, "goals": dict.fromkeys((*figures, "draws"), 0.8),
            "profile": [], "times": [["draws", 1.2, 50.0]], "missing": ["draws"],
            "below": ["gather by UVA / copy to the device"]}  # fmt: skip
    sentence = "Goal missed: gather by UVA / copy to the device is 0.41, the goal is 0.8."
    assert sentence in check_page.text(page)
    assert sentence in check_page.html(page)
    assert "Goal missed: epoch" not in check_page.text(page)
    assert "Not measured: draws, the goal is 0.8." in check_page.text(page)
    assert "| draws | 1 | 50 |" in check_page.text(page)


def test_a_draw_that_fails_is_a_check_that_is_not_passed(tmp_path, run):
    # Draws of more sources than memory could hold; the other samplers and the part after them go on.
    sizes = ("--vertices", "500", "--edges", "3000", "--repeats", "1", "--fanout", str(2**40))
    job = run("--stand-in", "--out", str(tmp_path), "--parts", "draws,sums", *sizes)
    assert job.returncode == 1
    page = json.loads((tmp_path / "gpu-check.json").read_text())
    failed = {each["name"]: each["detail"] for each in page["checks"] if not each["passed"]}
    assert failed["draws of with-replacement"]
    passed = [each["name"] for each in page["checks"] if each["passed"]]
    assert "draws of ladies" in passed
    assert passed[-1] == "products of the first layer"
