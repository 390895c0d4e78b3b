"""Kernels load no scipy.linalg, and those of users that multiply matrices work all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("scipy")


def outcome(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    ).stdout.strip()


def test_the_first_kernel_loads_no_scipy():
    program = """
import sys
import numpy as np
from leapmpi.system.counter_rng import fold_all
fold_all(np.uint64(1), np.arange(3))
print("scipy.linalg" in sys.modules)
"""
    assert outcome(program) == "False"


def test_products_of_matrices_compile():
    program = """
import numba
import numpy as np
import leapmpi.system.jit
product = numba.njit(lambda a, b: a @ b)
print(product(np.eye(2), np.ones((2, 2))).tolist())
"""
    assert outcome(program) == "[[1.0, 1.0], [1.0, 1.0]]"
