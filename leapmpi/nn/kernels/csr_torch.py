"""The functions of csr.py, which documents them, in torch operations for devices other than the CPU.

Sparse products keep memory proportional to vertices x features; where rows must be gathered by edge, they are gathered
in batches of bounded size. These functions run on the CPU too, and the tests compare them with those of csr.py.
"""

from __future__ import annotations

import warnings
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.kernels.triton_choice import serves

# torch warns once per process, whatever the use; the warning would show in each user's job.
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")

_IN_TRITON = torch.float32, torch.float64
"""Types that Triton's kernel adds up."""

MOST_GATHERED = 1 << 24
"""Largest number of elements gathered at once."""


def _rows(indptr: Tensor, edges: int) -> Tensor:
    """Return int64[edges]: the row of each edge."""
    rows = torch.arange(len(indptr) - 1, device=indptr.device)
    # Unless it knows how many there are, torch waits for the device.
    return rows.repeat_interleave(indptr.diff(), output_size=edges)


def segment_sums(indptr: Tensor, values: Tensor, reduce: str = "sum", initial: float = 0.0) -> Tensor:
    """Sum, or reduce otherwise, the values float[edges, ...] of each row in their order: float[rows, ...].

    A row without edges gets `initial`, which counts in the reduction of the others.
    """
    if len(indptr) == 1 or len(values) == 0:
        return values.new_full((len(indptr) - 1, *values.shape[1:]), initial)
    return torch.segment_reduce(values, reduce, offsets=indptr, axis=0, initial=initial)


def _sums_in_order(indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor) -> Tensor:
    """Sum as `weighted_sum` with one head; rows are gathered for at most MOST_GATHERED elements at once."""
    out, index = z.new_empty(len(indptr) - 1, z.shape[1]), indices.long()
    width = max(1, MOST_GATHERED // len(indices))
    for part, sums in zip(z.split(width, 1), out.split(width, 1), strict=True):
        sums.copy_(segment_sums(indptr, part[index] * weight))
    return out


def weighted_sum(indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, number: Tensor | None = None) -> Tensor:
    """Sum by Triton's kernel where it serves; else by a sparse product per head.

    Edge e has the weight `number[e]` (int64[edges]) where numbers are given. On a GPU that product adds up in any
    order, unless torch uses deterministic algorithms.
    """
    rows, heads = len(indptr) - 1, weight.shape[1]
    if rows == 0 or len(indices) == 0:
        return z.new_zeros(rows, z.shape[1])
    if (
        weight.dtype == z.dtype
        and z.dtype in _IN_TRITON
        and serves("sums over edges", z.device, partial(_tried, z.device))
    ):
        return _in_triton().weighted_sum(indptr, indices, weight, z, number)
    weight = weight if number is None else weight[number]
    # Sparse products on a GPU may add by atomics, in any order.
    if torch.are_deterministic_algorithms_enabled():
        each = zip(weight.split(1, 1), z.chunk(heads, dim=1), strict=True)
        return torch.cat([_sums_in_order(indptr, indices, *one) for one in each], dim=1)
    parts = []
    for h, part in enumerate(z.chunk(heads, dim=1)):
        values = weight[:, h].contiguous()
        matrix = torch.sparse_csr_tensor(indptr, indices.long(), values, size=(rows, len(z)), check_invariants=False)
        parts.append(matrix @ part.contiguous())
    return torch.cat(parts, dim=1) if heads > 1 else parts[0]


def _in_triton() -> ModuleType:
    # Here and not above: it loads Triton.
    from leapmpi.nn.kernels import csr_triton

    return csr_triton


def edge_kernels(device: torch.device) -> ModuleType | None:
    """Return csr_triton.py if its kernels for lists of edges serve `device`: one launch, where torch takes some."""
    if on_host(device) or not serves("lists of edges", device, partial(_lists_tried, device)):
        return None
    return _in_triton()


def _tried(device: torch.device) -> bool:
    """Return whether Triton gives the bits of `_sums_in_order`, on rows without edges, with few, and with many."""
    counts = torch.tensor([0, 1, 3, 700, 0, 65], device=device)
    indptr = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    number = torch.arange(int(indptr[-1]), device=device)
    # Roots are irrational: products and sums are rounded, so another order, or a fused product, changes bits.
    indices, z = number * 37 % 101, torch.arange(101 * 70, device=device).view(101, 70).double().sqrt()
    for dtype, heads in ((torch.float32, 1), (torch.float64, 2)):
        weight, rows = number.to(dtype).sqrt().unsqueeze(1).repeat(1, heads), z.to(dtype)
        for index in (indices, indices.int()):
            # By number once, too.
            numbered = (weight.flip(0), rows, number.flip(0)) if index is indices else (weight, rows)
            found = _in_triton().weighted_sum(indptr, index, *numbered)
            if not torch.equal(found, _sums_in_order(indptr, index, weight[:, :1], rows)):
                return False
    return True


def _lists_tried(device: torch.device) -> bool:
    """Return whether Triton makes the lists that torch makes, of some rows, empty ones among them."""
    counts = torch.tensor([0, 3, 70, 0, 16, 33, *[2] * 60, 0], device=device)
    indptr = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    indices = torch.arange(int(indptr[-1]), device=device) * 37 % 90
    found, edges = _in_triton(), len(indices)
    self_indptr, self_indices = _with_self(indptr, indices)
    pairs = [
        *zip(found.transpose(indptr, indices, 95), _transposed(indptr, indices, 95), strict=True),
        *zip(found.with_self(indptr, indices), (self_indptr, self_indices), strict=True),
    ]

    # Shares, and the weights of gcn.py, in its order of products.
    places = torch.arange(edges, device=device) + _rows(indptr, edges) + 1
    degree, drawn = counts + counts % 5, torch.arange(1, edges + 1, device=device).float().sqrt()
    for dtype in _IN_TRITON:
        root = torch.arange(1, 96, device=device).to(dtype).sqrt().reciprocal()
        for weight in (None, drawn):
            divisor, dividend = (counts, 1) if weight is None else (degree, weight.to(dtype))
            share = dividend / divisor.to(dtype).repeat_interleave(counts, output_size=edges)
            pairs.append((found.shares(edges, indptr, None if weight is None else degree, weight, dtype), share))
            weights = root.new_empty(len(self_indices))
            weights[self_indptr[:-1]] = root[: len(counts)].square()
            own, full = (each.repeat_interleave(counts, output_size=edges) for each in (root[: len(counts)], degree))
            weights[places] = own * root[indices] * (share * full)
            pairs.append((found.symmetric_weight(indptr, indices, root, degree, weight), weights))
    return all(torch.equal(*pair) for pair in pairs)


def add_rows(out: Tensor, positions: Tensor, rows: Tensor) -> None:
    """Do the same as in csr.py."""
    out.index_add_(0, positions, rows)


def edge_products(indptr: Tensor, indices: Tensor, g: Tensor, z: Tensor, heads: int) -> Tensor:
    """Multiply as csr.py; rows are gathered for at most MOST_GATHERED elements at once."""
    out = z.new_empty(len(indices), heads)
    count = max(1, MOST_GATHERED // max(1, z.shape[1]))
    shape = (-1, heads, z.shape[1] // heads)
    for row, source, products in zip(
        _rows(indptr, len(indices)).split(count), indices.long().split(count), out.split(count), strict=True
    ):
        products.copy_((g[row].view(shape) * z[source].view(shape)).sum(2))
    return out


def maximum(indptr: Tensor, indices: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Find maxima as csr.py; columns are gathered for at most MOST_GATHERED elements at once."""
    rows = len(indptr) - 1
    row = _rows(indptr, len(indices))
    out = z.new_zeros(rows, z.shape[1])
    chosen = torch.full(out.shape, -1, dtype=torch.int32, device=z.device)
    if rows == 0 or len(indices) == 0:
        return out, chosen
    number = torch.arange(len(indices), device=z.device).unsqueeze(1)
    width = max(1, MOST_GATHERED // len(indices))
    for part, largest, source in zip(z.split(width, 1), out.split(width, 1), chosen.split(width, 1), strict=True):
        # The maximum of each row.
        gathered = part[indices.long()]
        place = row.unsqueeze(1).expand_as(gathered)
        largest.scatter_reduce_(0, place, gathered, "amax", include_self=False)

        # The first edge that has it (NaN counts as the largest), and the source of that edge.
        is_largest = (gathered == largest[row]) | gathered.isnan()
        first = torch.full(largest.shape, len(indices), device=z.device)
        first.scatter_reduce_(0, place, number.where(is_largest, len(indices)), "amin")
        has = first < len(indices)
        source[has] = indices[first[has]].int()
    return out, chosen


def maximum_backward(chosen: Tensor, grad: Tensor, sources: int) -> Tensor:
    """Add gradients as csr.py; on a GPU the order of the sums may differ from run to run."""
    out = grad.new_zeros(sources, grad.shape[1])
    if sources == 0:
        return out
    return out.scatter_add_(0, chosen.clamp(min=0).long(), grad.where(chosen >= 0, 0))


def edge_sums(indptr: Tensor, edges: Tensor, values: Tensor) -> Tensor:
    """Sum as csr.py; the values of all edges are gathered at once, as heads are few."""
    return segment_sums(indptr, values[edges])


def softmax(indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
    """Compute shares as csr.py; on a GPU sums of a row may differ in their last bits from those of a CPU."""
    row = _rows(indptr, len(indices))
    score = torch.nn.functional.leaky_relu(source[indices.long()] + target[row], slope)
    largest = segment_sums(indptr, score, "max", -torch.inf)
    share = (score - largest[row]).exp_()
    return share / segment_sums(indptr, share)[row]


def softmax_backward(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, slope: float, share: Tensor, grad: Tensor
) -> Tensor:
    """Compute gradients as csr.py, from the shares alone: scores are recomputed only for their sign."""
    row = _rows(indptr, len(indices))
    mean = segment_sums(indptr, share * grad)
    change = share * (grad - mean[row])
    return torch.where(source[indices.long()] + target[row] < 0, change * slope, change)


def shares(
    indptr: Tensor, edges: int, sampled: Tensor | None, weight: Tensor | None, degree: Tensor, dtype: torch.dtype
) -> Tensor:
    """Return float[edges]: each edge's share in the estimated mean over all in-neighbours of its destination.

    One over the `sampled` count, by default that of the list, or weight over full `degree` where the sampler weights
    its edges. `sampled` and `degree` are int64[rows].
    """
    if kernels := edge_kernels(indptr.device):
        return kernels.shares(edges, indptr, sampled if weight is None else degree, weight, dtype)
    counts = indptr.diff()
    if weight is not None:
        return weight.to(dtype) / degree.repeat_interleave(counts, output_size=edges)
    mean = (counts if sampled is None else sampled).to(dtype).reciprocal_()
    return mean.repeat_interleave(counts, output_size=edges)


def transpose(indptr: Tensor, indices: Tensor, sources: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort edges by source as csr.py, by Triton if it applies, else by a sort that keeps their order."""
    kernels = edge_kernels(indptr.device)
    return (kernels.transpose if kernels else _transposed)(indptr, indices, sources)


def _transposed(indptr: Tensor, indices: Tensor, sources: int) -> tuple[Tensor, Tensor, Tensor]:
    edges = torch.argsort(indices, stable=True)
    out_indptr = torch.zeros(sources + 1, dtype=torch.int64, device=indices.device)
    out_indptr[1:] = torch.bincount(indices, minlength=sources).cumsum(0)
    return out_indptr, _rows(indptr, len(indices))[edges].to(indices.dtype), edges


def with_self(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Add edges as csr.py, by Triton if it applies."""
    kernels = edge_kernels(indptr.device)
    return (kernels.with_self if kernels else _with_self)(indptr, indices)


def _with_self(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    rows = len(indptr) - 1
    out_indptr = indptr + torch.arange(rows + 1, device=indices.device)
    out_indices = indices.new_empty(len(indices) + rows)

    # Each row starts with its new edge; edge e of row i moves by the new edges of rows 0 to i.
    out_indices[out_indptr[:-1]] = torch.arange(rows, dtype=indices.dtype, device=indices.device)
    out_indices[torch.arange(len(indices), device=indices.device) + _rows(indptr, len(indices)) + 1] = indices
    return out_indptr, out_indices
