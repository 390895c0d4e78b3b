"""Edge lists and gathered products: compiled kernels against torch operations, and against plain definitions."""

import numpy as np
import pytest
import torch

from leapmpi.nn.kernels import csr, csr_torch


def edge_list(counts, sources):
    """indptr and indices of a list with so many edges per row, from distinct random sources."""
    rng = np.random.default_rng(0)
    indices = [np.sort(rng.choice(sources, count, replace=False)) for count in counts]
    flat = np.concatenate([*indices, np.empty(0, np.int64)]).astype(np.int32)
    return torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)), torch.from_numpy(flat)


CASES = {
    "uneven": ([3, 0, 1, 9, 4, 5, 12], 14),
    "no edges": ([0, 0, 0], 5),
    "no rows": ([], 4),
    "nothing": ([], 0),
}


@pytest.mark.parametrize(("counts", "sources"), CASES.values(), ids=CASES)
def test_both_implementations_build_the_same_edge_lists(counts, sources):
    indptr, indices = edge_list(counts, sources)
    for name, extra in (("transpose", (sources,)), ("with_self", ())):
        compiled = getattr(csr, name)(indptr, indices, *extra)
        portable = getattr(csr_torch, name)(indptr, indices, *extra)
        for a, b in zip(compiled, portable, strict=True):
            assert torch.equal(a, b)
            assert a.dtype == b.dtype


@pytest.mark.parametrize("kernels", [csr, csr_torch])
def test_transposed_edges_keep_their_order(kernels):
    indptr, indices = edge_list(*CASES["uneven"])
    by_source, targets, number = kernels.transpose(indptr, indices, 14)
    rows = torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff())
    for j in range(14):
        edges = slice(int(by_source[j]), int(by_source[j + 1]))
        expected = torch.nonzero(indices == j).flatten()
        assert torch.equal(number[edges], expected)
        assert torch.equal(targets[edges].long(), rows[expected])


def test_products_do_not_depend_on_how_many_rows_are_gathered_at_once(monkeypatch):
    indptr, indices = edge_list([9] * 20, 30)
    generator = torch.Generator().manual_seed(1)
    g, z = (torch.randn(rows, 8, dtype=torch.float64, generator=generator) for rows in (20, 30))
    whole = csr_torch.edge_products(indptr, indices, g, z, 2)
    monkeypatch.setattr(csr_torch, "MOST_GATHERED", 50)
    assert torch.equal(csr_torch.edge_products(indptr, indices, g, z, 2), whole)


@pytest.mark.parametrize(("counts", "sources"), CASES.values(), ids=CASES)
def test_sums_in_a_fixed_order_are_those_of_the_host(counts, sources, monkeypatch):
    # cuSPARSE, which torch takes for sparse products, adds up in any order.
    monkeypatch.setattr(torch, "sparse_csr_tensor", None)
    monkeypatch.setattr(csr_torch, "MOST_GATHERED", 100)
    indptr, indices = edge_list(counts, sources)
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(sources, 6, dtype=torch.float64, generator=generator)
    torch.use_deterministic_algorithms(True)
    try:
        for heads in (1, 3):
            weight = torch.randn(len(indices), heads, dtype=torch.float64, generator=generator)
            found, expected = (each.weighted_sum(indptr, indices, weight, z) for each in (csr_torch, csr))
            torch.testing.assert_close(found, expected)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("counts", "sources"), CASES.values(), ids=CASES)
def test_both_implementations_add_rows_alike(counts, sources):
    _, indices = edge_list(counts, sources)
    positions = torch.arange(len(indices)) % max(1, len(counts))

    # Whole numbers, whose sums do not depend on their order.
    rows = torch.arange(3.0 * len(indices)).view(-1, 3)
    sums = torch.ones(2, len(counts), 3)
    csr.add_rows(sums[0], positions, rows)
    csr_torch.add_rows(sums[1], positions, rows)
    assert torch.equal(sums[0], sums[1])


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_rows_of_another_type_are_added_by_their_values(dtypes):
    sums, rows = torch.zeros(3, 20, dtype=dtypes[0]), torch.arange(40, dtype=dtypes[1]).view(2, 20)
    csr.add_rows(sums, torch.tensor([0, 2]), rows)
    assert sums[[0, 2]].tolist() == rows.tolist()
