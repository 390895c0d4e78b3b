"""Cases of tests/parallel that the suite spreads over numbers of ranks, or leaves out: all of them on 1 to 4 ranks."""

import sys

import pytest

from tests.support.launch import mpirun


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "file", ["full_batch", "gpu", "inference", "learned_rows", "owner", "stand_in", "typed_graphs"]
)
def test_steps_and_outputs_are_those_of_a_single_process(file, ranks):
    command = [sys.executable, "-m", "tests.parallel", f"tests/parallel/test_{file}.py"]
    job = mpirun(ranks, command, timeout=1000, env={"LEAPMPI_SOAK": "1"})
    assert job.returncode == 0, job.stdout
