"""Rows that travel packed give the bits of rows that travel whole, in fewer bytes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.exchange.context import Packing
from leapmpi.exchange.stage import Transfer
from leapmpi.system.phase_timers import PhaseTimers
from tests.support.equality import Case, Runner, here

LEAP = Case(
    strategy="leap", partition="metis", parts=4, batch="even", fanout="4,3,2", model="gcn", dropout="hidden",
    shape="plain", labels="single", threads=1, remote="partial", merge="paper", rows="copied", cache="none", prefetch=0,

)  # fmt: skip
FULL = dataclasses.replace(LEAP, fanout="all,all", batch="larger than the training set", remote="raw")
CASES = here(
    [
        LEAP,
        dataclasses.replace(LEAP, model="sage", remote="mixed", strategy="leap, ring", partition="uneven", prefetch=1),
        dataclasses.replace(LEAP, strategy="owner", remote="raw", shape="residual"),
        dataclasses.replace(LEAP, shape="layer norm", fanout="10,10"),
        dataclasses.replace(LEAP, model="gin", fanout="10,10"),
        dataclasses.replace(LEAP, model="gatv2", remote="projected", fanout="3,2"),
        dataclasses.replace(LEAP, strategy="owner", remote="raw", dropout="everywhere"),
        dataclasses.replace(LEAP, strategy="owner", remote="raw", model="sage", shape="layer norm"),
        dataclasses.replace(FULL, strategy="depcomm"),
        dataclasses.replace(FULL, strategy="hybrid", model="gat", dropout="everywhere"),
    ]
)


class PackedRunner(Runner):
    """A Runner whose ranks pack the rows that they compute for each other."""

    def _load(self, case):
        loaded = super()._load(case)
        return dataclasses.replace(loaded, ctx=dataclasses.replace(loaded.ctx, packing=Packing.WITHOUT_ZEROS))


@pytest.mark.parametrize(
    "case", CASES, ids=lambda each: f"{each.model}-{each.strategy}-{each.remote}-{each.shape}-{each.dropout}"
)
def test_the_steps_are_those_of_whole_rows(case, base, world):
    whole, packed = Runner(base, world).run(case), PackedRunner(base, world).run(case)
    sent = [0, 0]
    for a, b in zip(whole, packed, strict=True):
        assert a.loss == b.loss
        for name, gradient in a.gradients.items():
            assert np.array_equal(gradient, b.gradients[name]), name
        sent[0] += a.counted["activations"]
        sent[1] += b.counted["activations"]
    whole_bytes, packed_bytes = (world.comm.allreduce(each) for each in sent)
    assert packed_bytes <= whole_bytes
    if case.dropout != "none" and case.shape == "plain" and case.model in ("gcn", "sage") and whole_bytes:
        # Rows of a hidden layer: half of the kept columns, and no gradients for the zeros among them.
        assert packed_bytes < (0.35 if case.remote == "raw" else 0.7) * whole_bytes


def _context(world, packing=Packing.WITHOUT_ZEROS):
    return SimpleNamespace(communicator=MPICommunicator(world.comm), phases=PhaseTimers(), packing=packing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_without_zeros_arrive_with_short_exponents(dtype, world):
    ctx = _context(world, Packing.SHORT_EXPONENTS)
    counts = np.full(world.size, 5000)
    counts[world.rank] = 0
    transfer = Transfer(ctx, counts, counts, 64, zeros=(False, False))
    every = torch.randn(world.size, world.size, 5000, 64, generator=torch.Generator().manual_seed(3), dtype=dtype)
    others = [rank for rank in range(world.size) if rank != world.rank]
    sent, expected = every[world.rank, others].flatten(0, 1), every[others, world.rank].flatten(0, 1)
    for start in (transfer.start, transfer.start_back):
        before = ctx.communicator.byte_counters.bytes["activations"]
        assert torch.equal(start(sent)(), expected)
        bytes_sent = ctx.communicator.byte_counters.bytes["activations"] - before
        whole = sent.nbytes
        assert bytes_sent == whole if dtype == torch.float64 or not whole else 0.84 * whole < bytes_sent < 0.86 * whole


@pytest.mark.parametrize("width", [3, 70_000])
def test_rows_of_any_width_arrive(width, world):
    ctx = _context(world)
    counts = np.ones(world.size, np.int64)
    counts[world.rank] = 0
    sent = torch.full((world.size - 1, width), float(world.rank + 1))
    sent[:, 0] = 0
    arrived = Transfer(ctx, counts, counts, width).start(sent)()
    others = [rank + 1 for rank in range(world.size) if rank != world.rank]
    assert arrived[:, 1].tolist() == arrived[:, -1].tolist() == others
    assert not arrived[:, 0].any()


@pytest.mark.parametrize("zeros", [(True, False), (False, True)])
def test_only_rows_with_zeros_or_unread_columns_are_packed(zeros, world):
    ctx = _context(world)
    counts = np.full(world.size, 2)
    counts[world.rank] = 0
    transfer = Transfer(ctx, counts, counts, 64, zeros=zeros)
    rows = torch.zeros(int(counts.sum()), 64)
    sent = []
    for start in (transfer.start, transfer.start_back):
        before = ctx.communicator.byte_counters.bytes["activations"]
        assert not start(rows)().any()
        sent.append(ctx.communicator.byte_counters.bytes["activations"] - before)
    assert [each < rows.nbytes for each in sent] == [each and world.size > 1 for each in zeros]


@pytest.mark.parametrize("reads", [None, 5])
def test_the_gradients_of_zeros_do_not_travel(reads, world):
    ctx = _context(world)
    counts = np.full(world.size, 3)
    counts[world.rank] = 0
    transfer = Transfer(ctx, counts, counts, 64, zeros=(True, False), hides=True)
    rows = torch.ones(int(counts.sum()), 64)
    rows[:, ::2] = 0
    kept = None
    if reads is not None:
        kept = np.zeros(rows.shape, np.uint8)
        kept[:, :reads] = 1
    arrived = transfer.start(rows, (kept, kept))()
    assert torch.equal(arrived, rows if kept is None else rows * torch.from_numpy(kept))

    # Columns 1, 3, ... are not zero; no bits mark them, since both ends know the rows.
    before = ctx.communicator.byte_counters.bytes["activations"]
    gradient = torch.full_like(rows, 2.0)
    back = transfer.start_back(gradient, transfer.kept_back((kept, kept), rows, arrived))()
    assert torch.equal(back, 2 * arrived)
    sent = ctx.communicator.byte_counters.bytes["activations"] - before
    assert sent == 4 * len(rows) * (32 if reads is None else 2)
