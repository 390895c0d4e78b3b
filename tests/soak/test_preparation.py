"""jobs/bench/preparation at a hundredth: a million vertices, ten million directed edges, by every step."""

import sys

import pytest

from leapmpi.dataset.partitioned import open_dataset
from tests.support.launch import PROJECT, child_environment, run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", ["grem", "ldg"])
def test_a_hundredth_of_a_billion_edges(tmp_path, method):
    script = PROJECT / "jobs/bench/preparation"
    words = [tmp_path, "--scale", "0.01", "--max-mem", "512M", "--method", method]
    job = run([sys.executable, *map(str, (script, *words))], 590, child_environment(), PROJECT)
    assert job.returncode == 0, job.stderr
    for command in ("synth", "import", "partition", "check"):
        assert f"$ leapmpi-prep {command} " in job.stdout
    assert "sound dataset of 8 parts, 1,000,000 vertices" in job.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]
    assert open_dataset(tmp_path / "data").feature_dim == 16
