"""Exponentials and logarithms that become vectors, against those of numpy."""

import numpy as np
import pytest

from leapmpi.nn.kernels.exponential import exponential, logarithm
from leapmpi.system.jit import compiled


@compiled
def _exponentials(x, out):
    for i in range(len(x)):
        out[i] = exponential(x[i])


@compiled
def _logarithms(x, out):
    for i in range(len(x)):
        out[i] = logarithm(x[i])


def units_apart(found, expected):
    """The largest distance in units of the last place."""
    return np.max(np.abs(found - expected) / np.spacing(np.abs(expected)))


@pytest.mark.parametrize(("kind", "least"), [(np.float32, -87), (np.float64, -708)])
def test_exponentials_are_within_two_units(kind, least):
    x = np.concatenate([np.linspace(least, 88, 100_001), np.linspace(-1e-3, 1e-3, 1001)]).astype(kind)
    out = np.empty_like(x)
    _exponentials(x, out)
    assert units_apart(out, np.exp(x.astype(np.float64)).astype(kind)) <= 2


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_of_nothing_and_of_very_little(kind):
    x = np.array([0, -np.inf, np.finfo(kind).min], kind)
    _exponentials(x, x)
    assert x[0] == 1
    assert np.all(x[1:] < 2 * np.finfo(kind).tiny)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_logarithms_are_within_three_units(kind):
    x = np.concatenate([np.linspace(1, 3, 100_001), np.geomspace(1e-30, 1e30, 10_001)]).astype(kind)
    out = np.empty_like(x)
    _logarithms(x, out)
    assert out[0] == 0
    assert units_apart(out, np.log(x.astype(np.float64)).astype(kind)) <= 3
