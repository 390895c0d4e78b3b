"""Rule R2 for learned rows, for the full product of models, modes, strategies and partitions, on 1 to 4 ranks."""

import sys

import pytest

from tests.support.launch import mpirun


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_gradients_of_rows_are_those_of_a_single_process(ranks):
    command = [sys.executable, "-m", "tests.parallel", "tests/parallel/test_learned_rows.py"]
    job = mpirun(ranks, command, timeout=1000, env={"LEAPMPI_SOAK": "1"})
    assert job.returncode == 0, job.stdout
