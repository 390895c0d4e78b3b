"""Transit-parallel draws against their description, whatever the grouping, the threads and the implementation."""

import numpy as np
import pytest
import torch

from leapmpi.sampling import transit_torch
from leapmpi.sampling.team import Team
from leapmpi.sampling.transit import draw_pairs, grouped, walk
from tests.sampling import twin

TOPOLOGY = twin.random_topology(900, 20_000, seed=3, hubs=5.0)
TEAM = Team(3)


def pairs(count=5000, seed=0):
    """Transits, of which some are frequent and one is alone in the graph, and names with every bit in use."""
    rng = np.random.default_rng(seed)
    transits = np.minimum(rng.geometric(0.01, count), TOPOLOGY.vertices) - 1
    return transits, rng.integers(0, 2**64, count, dtype=np.uint64)


def plain(transits, names, draws):
    rows = []
    for transit, name in zip(transits, names, strict=True):
        near = TOPOLOGY.indices[TOPOLOGY.indptr[transit] : TOPOLOGY.indptr[transit + 1]]
        drawn = [near[twin.bounded(twin.fold(int(name), j), len(near))] if len(near) else -1 for j in range(draws)]
        rows.append(drawn)
    return rows


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("draws", [1, 4])
def test_draws_are_those_of_the_description(group, draws):
    transits, names = pairs()
    drawn = draw_pairs(TOPOLOGY, transits, names, draws, TEAM, group)
    assert drawn.dtype == np.int32
    assert drawn.tolist() == plain(transits, names, draws)
    assert (draw_pairs(TOPOLOGY, transits, names, draws, Team(1), group) == drawn).all()


@pytest.mark.parametrize("group", [True, False])
def test_torch_draws_the_same(group):
    transits, names = pairs(seed=1)
    topology = (torch.from_numpy(TOPOLOGY.indptr), torch.from_numpy(TOPOLOGY.indices))
    drawn = transit_torch.draw_pairs(
        *topology, torch.from_numpy(transits), torch.from_numpy(names.view(np.int64)), 3, group
    )
    assert drawn.tolist() == plain(transits, names, 3)


@pytest.mark.parametrize("vertices", [1, 7, 3000, 5_000_000])
def test_groups_are_a_stable_sort(vertices):
    transits = np.random.default_rng(2).integers(0, vertices, 3000)
    assert (grouped(transits, vertices) == np.argsort(transits, kind="stable")).all()
    assert len(grouped(transits[:0], vertices)) == 0


def test_no_edges_at_all():
    nothing = torch.zeros(4, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
    drawn = transit_torch.draw_pairs(*nothing, torch.tensor([0, 2]), torch.tensor([5, 6]), 2)
    assert drawn.tolist() == [[-1, -1], [-1, -1]]


def test_walks_follow_edges_and_do_not_depend_on_the_grouping():
    starts = np.random.default_rng(4).integers(0, TOPOLOGY.vertices, 3000)
    paths = walk(TOPOLOGY, np.uint64(9), starts, 4, TEAM, group=True)
    assert (paths == walk(TOPOLOGY, np.uint64(9), starts, 4, Team(1))).all()
    assert paths[:, 0].tolist() == starts.tolist()
    for before, after in zip(paths[:, :-1].ravel(), paths[:, 1:].ravel(), strict=True):
        near = TOPOLOGY.indices[TOPOLOGY.indptr[before] : TOPOLOGY.indptr[before + 1]]
        assert after in near if len(near) else after == before
