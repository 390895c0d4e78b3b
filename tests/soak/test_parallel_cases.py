"""Rule R2 for more models, modes, strategies and partitions than the suite takes, on 1 to 4 ranks."""

import sys

import pytest

from tests.support.launch import mpirun


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("file", ["full_batch", "gpu", "inference", "learned_rows", "owner"])
def test_steps_and_outputs_are_those_of_a_single_process(file, ranks):
    command = [sys.executable, "-m", "tests.parallel", f"tests/parallel/test_{file}.py"]
    job = mpirun(ranks, command, timeout=1000, env={"LEAPMPI_SOAK": "1"})
    assert job.returncode == 0, job.stdout
