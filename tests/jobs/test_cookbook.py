"""jobs/COOKBOOK.md: every recipe runs as it stands, in order, on 80 columns and with nothing set for root."""

import os
import re

import pytest

from tests.support.launch import PROJECT, child_environment, run

PAGE = (PROJECT / "jobs/COOKBOOK.md").read_text()
RECIPES = re.findall(r"^## (\d+)\. ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
LEFT = {
    "1": "mine.h5", "2": "data.html", "4": "runs/sage/weights-best.h5", "6": "report.html", "7": "runs/widths/model-01",
    "8": "runs/own/summary.json", "9": "runs/links/summary.json", "10": "classes.npy",
    "12": "runs/learned/summary.json", "13": "things-predicted.csv", "14": "grown.csv", "15": "partners.csv",
}  # fmt: skip
"""What some recipes leave behind."""


def bare_environment(home):
    """The environment of a new container: no settings of Open MPI, a terminal of 80 columns, an empty home."""
    kept = {key: value for key, value in child_environment().items() if not key.startswith(("OMPI_", "PRTE_", "PMIX_"))}
    return kept | {"COLUMNS": "80", "HOME": str(home), "TERM": "dumb"}


HEAVY = ("5", "6", "7", "12", "14", "15")
"""Recipes that only LEAPMPI_SOAK runs: all take 102 s of processor time."""


@pytest.mark.long(60)
@pytest.mark.timeout(600)
def test_every_recipe_runs(tmp_path):
    assert [number for number, _, _ in RECIPES] == [str(number) for number in range(1, 17)]
    (tmp_path / "jobs").symlink_to(PROJECT / "jobs")
    environment = bare_environment(tmp_path / "home")
    (tmp_path / "home").mkdir()
    left = () if "LEAPMPI_SOAK" in os.environ else HEAVY
    for number, title, body in RECIPES:
        if number in left:
            continue
        commands = "\n".join(re.findall(r"```sh\n(.*?)```", body, flags=re.DOTALL))
        assert commands, title
        job = run(["bash", "-euc", commands], 120, environment, tmp_path)
        assert job.returncode == 0, f"{number}. {title}\n{job.stdout}\n{job.stderr}"
        assert "Traceback" not in job.stderr
        if number in LEFT:
            assert os.path.exists(tmp_path / LEFT[number]), title
    assert (tmp_path / "things-predicted.csv").read_text().startswith("vertex,class\nbook-0,")
    if not left:
        assert len((tmp_path / "grown.csv").read_text().splitlines()) == 1 + 2100
