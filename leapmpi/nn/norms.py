"""Layer and batch normalisation of rows.

Layer normalisation: Ba, Kiros and Hinton, "Layer normalization" (2016). Batch normalisation over the whole batch: Ioffe
and Szegedy, "Batch normalization" (ICML 2015), algorithms 1 and 2.

The statistics of a layer are those of the batch's distinct vertices in it, over all ranks. A vertex in the blocks of
several ranks has the same row everywhere, and one of them counts it. So h(l, v) does not depend on where v is computed
(rule R1b). The gradient has two parts. One is that of the row itself, on every rank that has it. The other goes through
the statistics to the counted row alone, from the gradients of all rows on all ranks.

Evaluation uses running statistics, which every training step moves. The function that gathers numbers of all ranks is
given from above: nothing here communicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

EPSILON = 1e-5
"""Added to variances."""

MOMENTUM = 0.1
"""The part of a batch in running statistics."""

Gather = Callable[[np.ndarray], np.ndarray]
"""From float64[k] of this rank to float64[ranks, k] of all ranks. Collective."""


@dataclass(frozen=True, eq=False)
class BatchRows:
    """Rows of this rank's blocks that count for the batch, and the function that gathers numbers of all ranks.

    counted[n]: int64, the rows of layer n's output (n counts from 1; the first rows of the block after it) that this
    rank counts; None for all of them.
    """

    counted: Sequence[Tensor | None]
    gather: Gather


@dataclass(frozen=True, eq=False)
class Moments:
    """The number of rows, and their mean and sum of squared differences from it: float64[width] each."""

    count: float
    mean: Tensor
    squares: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Moments:
        """Compute the moments of `rows` (float[n, width]), zeros without any."""
        # Squares are summed about the mean: plain sums of squares lose the variance where the mean is large.
        rows = rows.double()
        mean = rows.sum(0) / max(1, len(rows))
        return cls(len(rows), mean, (rows - mean).square().sum(0))

    def of_all(self, gather: Gather) -> Moments:
        """Compute the moments of the rows of all ranks, combined in rank order. Collective.

        Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
        """
        own = torch.cat([self.mean.new_tensor([self.count]), self.mean, self.squares])
        rows = torch.from_numpy(gather(own.cpu().numpy())).to(own.device)
        counts, (means, squares) = rows[:, :1], rows[:, 1:].chunk(2, dim=1)
        total = max(1.0, float(counts.sum()))
        mean = (counts * means).sum(0) / total
        return Moments(total, mean, (squares + counts * (means - mean).square()).sum(0))


class _Normalised(Function):
    """Rows less the mean, over the standard deviation. Forward and backward are collective."""

    @staticmethod
    def forward(ctx, x: Tensor, moments: Moments, counted: Tensor | None, gather: Gather) -> Tensor:
        inverse = (moments.squares / moments.count + EPSILON).rsqrt()
        out = (x - moments.mean.to(x.dtype)) * inverse.to(x.dtype)
        ctx.count, ctx.counted, ctx.gather, ctx.inverse = moments.count, counted, gather, inverse
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (out,) = ctx.saved_tensors

        # The gradients of all rows, copies included, act on the statistics.
        own = torch.cat([grad.double().sum(0), (grad.double() * out).sum(0)])
        sums = torch.from_numpy(ctx.gather(own.cpu().numpy())).to(own.device).sum(0) / ctx.count
        of_mean, of_deviation = sums.to(grad.dtype).chunk(2)

        # These follow from the counted rows alone.
        if ctx.counted is None:
            through = of_mean + out * of_deviation
        else:
            counted = of_mean + out.index_select(0, ctx.counted) * of_deviation
            through = torch.zeros_like(grad).index_copy_(0, ctx.counted, counted)
        return (grad - through) * ctx.inverse.to(grad.dtype), None, None, None


class BatchNormalise(nn.Module):
    """Batch normalisation of the rows that layer `after` (counted from 1) gives out.

    Within `normalising`, in training, by the statistics of the batch; else by the running ones.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, width: int, after: int, with_bias: bool = True) -> None:
        super().__init__()
        self.after = after
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if with_bias else None
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_variance", torch.ones(width))
        self.batch: BatchRows | None = None
        self.found: Moments | None = None
        """Moments of the last forward pass in training."""

    @property
    def gathered(self) -> tuple[int, int]:
        """Numbers of this rank (float64) that the forward and the backward pass bring to all ranks."""
        width = len(self.gain)
        return 1 + 2 * width, 2 * width

    def forward(self, x: Tensor) -> Tensor:
        """Normalise float[rows, width] -> float[rows, width]. Collective in training, and so is its backward pass."""
        if self.batch is None:
            x = (x - self.running_mean) * (self.running_variance + EPSILON).rsqrt()
        else:
            counted, gather = self.batch.counted[self.after], self.batch.gather
            rows = x.detach()
            self.found = Moments.of(rows if counted is None else rows.index_select(0, counted)).of_all(gather)
            x = _Normalised.apply(x, self.found, counted, gather)
        x = x * self.gain
        return x if self.bias is None else x + self.bias

    @torch.no_grad()
    def move(self) -> None:
        """Move the running statistics towards those of the last batch; variances there are without bias."""
        if self.found is not None:
            variance = self.found.squares / max(1.0, self.found.count - 1)
            self.running_mean.lerp_(self.found.mean.to(self.running_mean.dtype), MOMENTUM)
            self.running_variance.lerp_(variance.to(self.running_variance.dtype), MOMENTUM)
            self.found = None


def batch_norms(model: nn.Module) -> dict[str, BatchNormalise]:
    """Return the batch normalisations of `model` by name, in the order of its modules, which are found once."""
    if model not in _found:
        _found[model] = {name: each for name, each in model.named_modules() if isinstance(each, BatchNormalise)}
    return _found[model]


_found: WeakKeyDictionary[nn.Module, dict[str, BatchNormalise]] = WeakKeyDictionary()


@contextmanager
def normalising(model: nn.Module, batch: BatchRows | None) -> Iterator[None]:
    """Train `model` within this context on `batch`, None where it has no batch normalisation.

    Backward passes stay on the calling thread, which may talk to other ranks.
    """
    norms = batch_norms(model).values() if batch is not None else ()
    for each in norms:
        each.batch = batch
    try:
        with torch.autograd.set_multithreading_enabled(torch.autograd.is_multithreading_enabled() and not norms):
            yield
    finally:
        for each in norms:
            each.batch = None


class Normalise(nn.Module):
    """Layer normalisation of rows, with gradients summed in the same order on any thread count."""

    def __init__(self, width: int, with_bias: bool = True) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if with_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise float[rows, width] -> float[rows, width]."""
        x = F.layer_norm(x, x.shape[1:]) * self.gain
        return x if self.bias is None else x + self.bias


BATCH = "batch"


def norm_of(kind: str, width: int, after: int, with_bias: bool = True, auto: str = "none") -> nn.Module | None:
    """Return the normalisation `kind` (a value of model.norm) of rows that layer `after` gives out; None for none.

    `auto` is what that value stands for.
    """
    kind = auto if kind == "auto" else kind
    if kind == BATCH:
        return BatchNormalise(width, after, with_bias)
    return Normalise(width, with_bias) if kind == "layer" else None
