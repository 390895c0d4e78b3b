"""jobs/bench/preparation: wrong sizes are refused. tests/soak/test_preparation.py runs all steps."""

import subprocess
import sys

from tests.support.launch import PROJECT, child_environment, run

PREPARATION = PROJECT / "jobs/bench/preparation"


def preparation(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the script to its end."""
    return run([sys.executable, str(PREPARATION), *map(str, arguments)], 100, child_environment(), PROJECT)


def test_wrong_sizes_are_refused(tmp_path):
    job = preparation(tmp_path / "work", "--max-mem", "much")
    assert job.returncode != 0
    assert "--max-mem: 'much' is not a size" in job.stderr
    assert not (tmp_path / "work").exists()
