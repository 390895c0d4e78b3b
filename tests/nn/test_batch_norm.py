"""Batch normalisation against torch's, on one rank and on rows that several ranks share."""

import threading

import numpy as np
import pytest
import torch

from leapmpi.nn.norms import BatchNormalise, BatchRows, Moments, batch_norms, normalising
from leapmpi.nn.parameters import ParameterLayout

ROWS, WIDTH = 37, 5


def rows(seed: int, count: int = ROWS) -> torch.Tensor:
    return torch.randn(count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 3 + 100


class Ranks:
    """Threads that stand for ranks: `gather` brings their numbers together, in the same order on all."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=20)
        self.count, self.given = count, {}

    def gather_of(self, rank: int):
        def gather(numbers: np.ndarray) -> np.ndarray:
            self.given[rank] = numbers
            self.barrier.wait()
            all_numbers = np.stack([self.given[each] for each in range(self.count)])
            self.barrier.wait()
            return all_numbers

        return gather


def trained(norm: BatchNormalise, x: torch.Tensor, grad: torch.Tensor, counted, gather) -> torch.Tensor:
    """The output for `x`, through which `grad` passes back."""
    with normalising(norm, BatchRows([None, counted], gather)):
        out = norm(x)
        out.backward(grad)
    return out.detach()


def torchs(x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.nn.BatchNorm1d, torch.Tensor]:
    """torch's normalisation after one step on `x`, whose gradient is then that of x, and its output."""
    norm = torch.nn.BatchNorm1d(WIDTH, dtype=torch.float64)
    out = norm(x)
    out.backward(grad)
    return norm, out.detach()


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_one_rank_gives_what_torch_gives():
    x, theirs = rows(0).requires_grad_(), rows(0).requires_grad_()
    grad = rows(1) - 100
    norm = BatchNormalise(WIDTH, after=1).double()
    wanted, out = torchs(theirs, grad)
    close(trained(norm, x, grad, None, lambda numbers: numbers[None]), out)
    close(x.grad, theirs.grad)
    close(norm.gain.grad, wanted.weight.grad)
    close(norm.bias.grad, wanted.bias.grad)

    # Running statistics move when the step is taken, and serve afterwards.
    assert torch.equal(norm.running_mean, torch.zeros(WIDTH, dtype=torch.float64))
    norm.move()
    close(norm.running_mean, wanted.running_mean)
    close(norm.running_variance, wanted.running_var)
    norm.move()
    close(norm.running_mean, wanted.running_mean)
    close(norm(rows(2)), wanted.eval()(rows(2)))


def test_rows_that_ranks_share_count_once_and_learn_on_all():
    # Ranks 0 and 2 have rows 10 to 19 and 30 to 36 in common with others; rank 1 has none at all.
    shares = [torch.arange(0, 20), torch.arange(0), torch.arange(10, 37), torch.arange(30, 37)]
    counted = [torch.arange(20), torch.arange(0), torch.arange(10, 27), torch.arange(0)]
    whole, grads = rows(0), [rows(3 + rank, len(share)) - 100 for rank, share in enumerate(shares)]
    norms = [BatchNormalise(WIDTH, after=1).double() for _ in shares]
    inputs = [whole[share].clone().requires_grad_() for share in shares]
    ranks, outs = Ranks(len(shares)), [None] * len(shares)

    def run(rank: int) -> None:
        outs[rank] = trained(norms[rank], inputs[rank], grads[rank], counted[rank], ranks.gather_of(rank))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(shares))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    # One process has each row once, with the gradients of its copies added up.
    alone = whole.clone().requires_grad_()
    together = torch.zeros_like(whole)
    for share, grad in zip(shares, grads, strict=True):
        together.index_add_(0, share, grad)
    wanted, out = torchs(alone, together)
    learned = torch.zeros_like(whole)
    for rank, share in enumerate(shares):
        close(outs[rank], out[share])
        learned.index_add_(0, share, inputs[rank].grad)
        norms[rank].move()
        close(norms[rank].running_variance, wanted.running_var)
    close(learned, alone.grad)
    close(sum(each.gain.grad for each in norms), wanted.weight.grad)


def test_moments_far_from_zero_lose_nothing():
    x = rows(0) * 1e-3 + 1e6
    halves = [Moments.of(half) for half in x.split([30, 7])]
    table = np.stack([torch.cat([each.mean.new_tensor([each.count]), each.mean, each.squares]) for each in halves])
    found = halves[0].of_all(lambda own: table)
    torch.testing.assert_close(found.squares / found.count, x.var(0, unbiased=False), rtol=1e-6, atol=0)


def test_a_batch_of_one_vertex_has_no_spread():
    norm, x = BatchNormalise(WIDTH, after=1).double(), rows(0, 1).requires_grad_()
    out = trained(norm, x, torch.ones_like(x), None, lambda numbers: numbers[None])
    assert torch.equal(out, torch.zeros_like(out))
    norm.move()
    assert torch.isfinite(norm.running_variance).all()


def test_statistics_are_saved_with_the_weights_and_are_no_parameters():
    from leapmpi.config.sections import ModelConfig
    from leapmpi.nn.model import build_model

    config = ModelConfig(name="deepgcn", norm="batch", hidden=4)
    layout = ParameterLayout(build_model(config, 2, 6, 3, seed=1))
    model = layout.model
    assert len(batch_norms(model)) == 2
    model.layers[1].norm.running_mean.fill_(7)
    arrays = layout.by_name()
    assert set(arrays) == {*layout.shapes, *model.statistics()}
    assert set(layout.by_name(layout.gradients)) == set(layout.shapes)
    other = ParameterLayout(build_model(config, 2, 6, 3, seed=2))
    other.assign(arrays, "there")
    assert other.digest() == layout.digest()
    assert float(other.model.layers[1].norm.running_mean[0]) == 7
    with pytest.raises(Exception, match="belong to another model"):
        other.assign({name: arrays[name] for name in layout.shapes}, "there")
