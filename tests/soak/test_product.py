"""Rule R2 for the full product of options on 1, 2, 3 and 4 ranks (tests/soak/product.py): an hour or more.

The number of cases and the largest relative difference of a gradient are printed: see them with pytest -s or -rP.
"""

import re
import sys

import pytest

from tests.support.launch import mpirun

JOB_TIMEOUT = 4 * 3600


@pytest.mark.timeout(JOB_TIMEOUT + 60)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_combination_takes_the_steps_of_a_single_process(ranks):
    job = mpirun(ranks, [sys.executable, "-m", "mpi4py", "-m", "tests.soak.product"], JOB_TIMEOUT)
    assert job.returncode == 0, f"{job.stdout[-2000:]}\n{job.stderr[-6000:]}"
    last = job.stdout.strip().splitlines()[-1]
    print(last)
    assert int(re.match(r"(\d+) cases on", last)[1]) == 198_936 + 12_508
