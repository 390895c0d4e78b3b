"""jobs/COOKBOOK.md: every recipe runs as it stands, in the order of the page."""

import os
import re

import pytest

from tests.support.launch import PROJECT, child_environment, run

PAGE = (PROJECT / "jobs/COOKBOOK.md").read_text()
RECIPES = re.findall(r"^## (\d+)\. ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
# Root, and more ranks than cores: what jobs/mpirun/local sets, for the plain mpirun of the page.
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip
LEFT = {
    "1": "mine.h5", "2": "data.html", "4": "runs/sage/weights-best.h5", "6": "report.html", "7": "runs/widths/model-01",
    "8": "runs/own/summary.json", "9": "runs/links/summary.json", "10": "classes.npy",
}  # fmt: skip
"""What some recipes leave behind."""


@pytest.mark.long(30)
@pytest.mark.timeout(300)
def test_every_recipe_runs(tmp_path):
    assert [number for number, _, _ in RECIPES] == [str(number) for number in range(1, 11)]
    for number, title, body in RECIPES:
        commands = "\n".join(re.findall(r"```sh\n(.*?)```", body, flags=re.DOTALL))
        assert commands, title
        job = run(["bash", "-euc", commands], 120, child_environment(AS_ROOT), tmp_path)
        assert job.returncode == 0, f"{number}. {title}\n{job.stdout}\n{job.stderr}"
        assert "Traceback" not in job.stderr
        if number in LEFT:
            assert os.path.exists(tmp_path / LEFT[number]), title
