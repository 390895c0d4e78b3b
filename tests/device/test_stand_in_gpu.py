"""The stand-in for a GPU itself: it refuses, counts and orders as a GPU does."""

import numpy as np
import pytest
import torch

from tests.support.stand_in_gpu import DEVICE, DeviceTensor, Refused, present


@pytest.fixture
def gpu():
    with present() as found:
        yield found


@pytest.fixture
def order(gpu):
    """Its checker, whose findings the test expects."""
    yield gpu.order
    gpu.order.found.clear()


@pytest.mark.parametrize(
    "mixed",
    [
        lambda there: there + torch.ones(3),
        lambda there: torch.cat((there, torch.ones(3))),
        lambda there: there.index_select(0, torch.tensor([1])),
        lambda there: there[np.array([0, 2])],
        lambda there: there.add_(torch.ones(3)),
    ],
)
def test_host_and_device_do_not_mix(gpu, mixed):
    with pytest.raises(Refused):
        mixed(torch.ones(3, device=DEVICE))


def test_the_host_does_not_see_its_memory(gpu):
    there = torch.ones(3, device=DEVICE)
    assert isinstance(there, DeviceTensor)
    assert (there.device, there.is_cuda) == (DEVICE, True)
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    assert there.cpu().numpy().tolist() == [1, 1, 1]


def test_results_views_and_gradients_are_those_of_the_cpu(gpu):
    x, w = torch.arange(6.0).view(2, 3), torch.nn.Parameter(torch.ones(3, 2))
    there = torch.nn.Parameter(w.detach().to(DEVICE))
    for leaf, rows in ((w, x), (there, x.to(DEVICE))):
        (rows @ leaf).relu().sum().backward()
    assert torch.equal(there.grad.cpu(), w.grad)
    whole = torch.zeros(4, device=DEVICE)
    whole[1:3].fill_(2)
    whole[0] = 5
    assert whole.tolist() == [5, 2, 2, 0]


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        ("item", lambda there: there.sum().item()),
        ("item", lambda there: bool((there > 1).any())),
        ("nonzero", lambda there: torch.nonzero(there)),
        ("mask", lambda there: there[there > 1]),
        ("repeat_interleave", lambda there: there.repeat_interleave(there)),
        ("bincount", lambda there: torch.bincount(there)),
        ("equal", lambda there: torch.equal(there, there)),
        ("to host", lambda there: there.cpu()),
        ("synchronize", lambda there: torch.cuda.current_stream().synchronize()),
    ],
)
def test_waits_of_the_host_are_counted(gpu, kind, run):
    there = torch.arange(4, device=DEVICE)
    gpu.forget()
    run(there)
    assert {name for name, _ in gpu.waits} == {kind}
    assert gpu.waits.total() == 1


def test_what_stays_on_the_device_waits_for_nothing(gpu):
    there = torch.arange(4, device=DEVICE)
    there.repeat_interleave(there, output_size=6).cumsum(0)[1:].mul_(2)
    assert not gpu.waits
    assert gpu.operations["aten.mul_.Tensor"] == 1


def test_uses_that_nothing_orders_are_found(order):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        written = torch.ones(3, device=DEVICE)
    with torch.cuda.stream(second):
        written + 1
    assert len(order.found) == 1
    assert "nothing orders uses on streams" in order.found[0]


@pytest.mark.parametrize("how", ["event", "stream", "host", "same"])
def test_uses_in_order_are_not(gpu, how):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        written = torch.ones(3, device=DEVICE)
        event = torch.cuda.Event()
        event.record()
    if how == "event":
        second.wait_event(event)
    if how == "stream":
        second.wait_stream(first)
    if how == "host":
        first.synchronize()
    with torch.cuda.stream(first if how == "same" else second):
        written.add_(1)
    torch.cuda.synchronize()


def test_parts_of_one_allocation_are_told_apart(gpu):
    whole = torch.zeros(4, device=DEVICE)
    torch.cuda.synchronize()
    for part, stream in zip(whole.split(2), (torch.cuda.Stream(), torch.cuda.Stream()), strict=True):
        with torch.cuda.stream(stream):
            part.fill_(1)
    torch.cuda.synchronize()


@pytest.mark.parametrize("kept", [True, False])
def test_memory_given_back_while_another_stream_reads_it_is_found(order, kept):
    other = torch.cuda.Stream()
    there = torch.ones(3, device=DEVICE)
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        there + 1
    if kept:
        there.record_stream(other)
    del there
    assert len(order.found) == (not kept)


@pytest.mark.parametrize("waits", [True, False])
def test_a_pinned_buffer_is_not_filled_before_its_copy_has_ended(order, waits):
    buffer, event = torch.empty(3, pin_memory=True).zero_(), torch.cuda.Event()
    torch.empty(3, device=DEVICE).copy_(buffer, non_blocking=True)
    event.record()
    if waits:
        event.synchronize()
    buffer.numpy()[:] = 1
    torch.cuda.synchronize()
    assert len(order.found) == (not waits)
