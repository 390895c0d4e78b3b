"""Distances of all pairs of rows against the differences themselves, in torch."""

import pytest
import torch

from leapmpi.nn.kernels.distances import LEAST, LENGTHS, MAGNITUDES, distances
from leapmpi.system.worker_threads import set_threads, threads


def rows(count: int, seed: int, dtype: torch.dtype = torch.float64, width: int = 38) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(a, b, kind):
    difference = a[:, None] - b
    if kind is MAGNITUDES:
        return difference.abs().sum(dim=-1)
    real, imaginary = difference.chunk(2, dim=-1)
    return (real**2 + imaginary**2 + LEAST).sqrt().sum(dim=-1)


def with_gradients(function, a, b, kind):
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    found = function(a, b, kind)
    # Weights of both signs, laid out as a transposed matrix is.
    weight = torch.linspace(-1, 2, found.numel(), dtype=a.dtype).reshape(found.T.shape).T
    return found.detach(), *torch.autograd.grad((found * weight).sum(), (a, b))


@pytest.mark.parametrize("kind", [MAGNITUDES, LENGTHS], ids=["magnitudes", "lengths"])
@pytest.mark.parametrize(("dtype", "exact"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("few", "many"), [(3, 150), (150, 3), (1, 1), (0, 4), (4, 0)])
def test_distances_and_gradients_are_those_of_the_differences(kind, dtype, exact, few, many):
    a, b = rows(few, 1, dtype), rows(many, 2, dtype)
    if few and many:
        # The distance of equal rows has a gradient of zero.
        b[-1] = a[0]
    for found, wanted in zip(with_gradients(distances, a, b, kind), with_gradients(plain, a, b, kind), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, dtype)
        assert torch.allclose(found, wanted, rtol=exact, atol=100 * exact)


@pytest.mark.parametrize("kind", [MAGNITUDES, LENGTHS], ids=["magnitudes", "lengths"])
def test_threads_do_not_change_a_bit(kind):
    a, b, before = rows(50, 3, torch.float32), rows(90, 4, torch.float32), threads()
    found = with_gradients(distances, a, b, kind)
    try:
        set_threads(3)
        shared = with_gradients(distances, a, b, kind)
    finally:
        set_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(found, shared, strict=True))


def test_a_part_of_the_rows_has_the_same_distances():
    a, b = rows(20, 5, torch.float32), rows(80, 6, torch.float32)
    assert torch.equal(distances(a, b, LENGTHS)[7:9, 66:], distances(a[7:9], b[66:], LENGTHS))
