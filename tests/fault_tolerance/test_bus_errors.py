"""A mapped file that became shorter ends a job of one rank in a sentence."""

import subprocess
import sys

PROGRAM = """
import os, sys
import numpy as np
from leapmpi.fault_tolerance.bus_errors import report_bus_errors

open(sys.argv[1], "wb").write(bytes(1 << 16))
mapped = np.memmap(sys.argv[1], mode="r")
os.truncate(sys.argv[1], 0)
with report_bus_errors(1):
    print(mapped.sum())
"""


def test_a_file_that_became_shorter_ends_in_a_sentence(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "part")]
    job = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (job.returncode, job.stdout) == (3, "")
    assert job.stderr.startswith("leapmpi: error: a file of the dataset became shorter while the job read it")
    assert job.stderr.count("\n") == 1
