"""Which destinations a rank names to which owners, and which of their edges start at its own rows."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from leapmpi.exchange.named_destinations import NamedDestinations
from leapmpi.plan.homes import home_of
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support import twin

VERTICES = 150
KEY = DrawKey(TRAIN, 3, 0, 1)


@pytest.fixture(scope="module")
def sampler():
    return NodeWiseSampler(twin.random_topology(VERTICES, 2400, seed=4, hubs=3.0), (4, 3))


def context(sampler, ranks, rank):
    """Rank `rank` of `ranks`, whose ranges of ids are uneven, and of which some are empty."""
    inner = np.sort(np.random.default_rng(ranks).integers(0, VERTICES, ranks - 1))
    offsets = np.concatenate([[0], inner, [VERTICES]])
    first, end = offsets[rank : rank + 2].tolist()
    return SimpleNamespace(
        rank=rank,
        ranks=ranks,
        rank_offsets=offsets,
        local_range=(first, end),
        sampler=sampler,
        answers=None,
        device=torch.device("cpu"),
    )


@pytest.mark.parametrize("with_owner", [True, False])
@pytest.mark.parametrize(("ranks", "rank"), [(1, 0), (2, 1), (3, 1), (100, 40)])
def test_a_destination_is_named_once_to_each_owner_and_its_other_edges_start_here(ranks, rank, with_owner, sampler):
    ctx = context(sampler, ranks, rank)
    block = sampler.sample_unnumbered(KEY, np.random.default_rng(1).permutation(VERTICES)[:20])[-1]
    pairs = NamedDestinations(ctx, with_owner).pairs(block)

    # By the definition, destination by destination.
    wanted, here = set(), []
    for number, neighbours in enumerate(np.split(block.neighbours, block.indptr[1:-1])):
        owners = home_of(np.append(neighbours, block.dst[number]) if with_owner else neighbours, ctx.rank_offsets)
        wanted |= {(owner, number) for owner in owners.tolist() if owner != rank}
        here.append((neighbours - ctx.local_range[0])[home_of(neighbours, ctx.rank_offsets) == rank].tolist())

    found = list(zip(np.repeat(np.arange(ranks), pairs.counts).tolist(), pairs.destinations.tolist(), strict=True))
    assert found == sorted(wanted)
    rows = np.split(pairs.here.rows, pairs.here.indptr[1:-1])
    assert [each.tolist() for each in rows] == here
    away = block.neighbours[home_of(block.neighbours, ctx.rank_offsets) != rank]
    assert pairs.here.others.tolist() == away.tolist()


def test_without_destinations_nothing_is_named(sampler):
    block = sampler.sample_unnumbered(KEY, np.empty(0, np.int64))[-1]
    pairs = NamedDestinations(context(sampler, 3, 1)).pairs(block)
    assert pairs.counts.tolist() == [0, 0, 0]
    assert len(pairs.destinations) == len(pairs.here.rows) == len(pairs.here.others) == 0
