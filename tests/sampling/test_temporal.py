"""`temporal`: no draw is later than a root; which edges are drawn; batches and groups by time; times of roots."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from leapmpi.config.options import parse_options
from leapmpi.config.schema import Config
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.edge_lookup import uses_times
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.samplers import temporal
from leapmpi.sampling.training_edges import TrainingEdges
from leapmpi.system.counter_rng import PRESAMPLE, VAL, DrawKey
from tests.support import twin
from tests.support.draw_digest import block_edges
from tests.support.kinds import KEY, SEED, make, time_of, with_times

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def timed() -> Topology:
    return with_times(twin.random_topology(120, 2400, seed=4, hubs=3.0))


def sampler_of(topology: Topology, *options: str, fanouts=(4, 3), threads=1) -> temporal.Temporal:
    given = parse_options(temporal.Options, options, "temporal")
    return temporal.Temporal(Setup(topology, fanouts, np.arange(topology.vertices), SEED, threads), given)


def in_edges(topology: Topology, vertex: int) -> slice:
    return slice(topology.indptr[vertex], topology.indptr[vertex + 1])


def test_none_of_ten_million_draws_is_later_than_its_roots():
    vertices, degree = 4000, 100
    rng = np.random.default_rng(0)
    sources = np.sort((np.arange(degree) * 37 + rng.integers(0, vertices, (vertices, 1))) % vertices, axis=1)
    graph = Topology(np.arange(vertices + 1) * degree, sources.reshape(-1).astype(np.int32), np.arange(vertices))
    topology, drawn, at_bound = with_times(graph), 0, 0
    for number, options in enumerate([("draw=latest",), ("window=60",), (), ("same-time=no",)] * 18):
        sampler = sampler_of(topology, *options, fanouts=(40,), threads=2)
        sampler.root_time = rng.integers(50, 100, vertices)
        batch = rng.choice(vertices, 9, replace=False)
        earliest = sampler.root_time[batch].min()
        found = sampler.neighbours(KEY._replace(iteration=number), 0, np.arange(vertices), batch)
        time = time_of(found.neighbours, np.repeat(np.arange(vertices), np.diff(found.indptr)))
        drawn, at_bound = drawn + len(time), at_bound + np.count_nonzero(time == earliest)
        assert time.max() <= earliest - ("same-time=no" in options)
        assert time.min() >= (earliest - 60 if "window=60" in options else 0)
    assert drawn > 10_000_000
    assert at_bound > 0


@pytest.mark.parametrize("fanout", [5, -1])
@pytest.mark.parametrize(
    ("options", "older", "strict"),
    [((), 1000, False), (("window=20",), 20, False), (("draw=latest", "same-time=no"), 1000, True)],
)
@pytest.mark.parametrize("shift", [0, 0.5])
def test_draws_are_those_of_plain_numpy(timed, options, older, strict, fanout, shift):
    topology = replace(timed, edge_time=timed.edge_time + shift)
    sampler = sampler_of(topology, *options, fanouts=(fanout,))
    batch = np.argsort(sampler.root_time)[20:40]
    bound = min(topology.edge_time[in_edges(topology, v)].max() for v in batch)
    found = sampler.neighbours(KEY, 0, np.arange(topology.vertices), batch)
    for v, drawn in enumerate(np.split(found.neighbours, found.indptr[1:-1])):
        row, time = topology.indices[in_edges(topology, v)], topology.edge_time[in_edges(topology, v)]
        seen = np.flatnonzero((time < bound if strict else time <= bound) & (time >= bound - older))
        count = len(seen) if fanout < 0 else min(fanout, len(seen))
        if "draw=latest" in options:
            wanted = sorted(seen[np.lexsort((topology.original_id[row[seen]], -time[seen]))[:count]])
        else:
            hashed = twin.fold(twin.fold(twin.key_hash(KEY), 0), int(topology.original_id[v]))
            wanted = seen[twin.subset(hashed, len(seen), count)]
        assert drawn.tolist() == row[wanted].tolist()


def test_with_all_edges_in_view_draws_are_node_wise(timed):
    latest, roots = timed.edge_time.max(), np.arange(60)
    sampler = sampler_of(timed)
    sampler.root_time[:] = latest
    found = block_edges(sampler.sample(KEY, roots), timed)
    assert np.array_equal(found, block_edges(make("node-wise", timed, (4, 3)).sample(KEY, roots), timed))


@pytest.mark.parametrize("options", [(), ("draw=latest",), ("same-time=yes",)])
def test_edges_as_roots_see_earlier_ones_but_not_themselves(timed, options):
    edges = TrainingEdges(timed, both_ways=False)
    sampler = sampler_of(timed, *options)
    original = timed.original_id
    for number, batch in enumerate(sampler.edge_batches(edges, SEED, 0, 200)):
        time = time_of(*original[batch].T)
        key = KEY._replace(iteration=number)
        sampler.leave_out(key, batch)
        sampler.root_edges(key, batch)
        seen = block_edges(sampler.sample(key, np.unique(batch)), timed)[:, 1:]
        latest = time_of(seen[:, 1], seen[:, 0]).max(initial=-1)
        assert latest <= time.min() if "same-time=yes" in options else latest < time.min()
        assert len(seen) or number == 0 or time.min() == 0
        gone = {tuple(each) for each in original[np.concatenate([batch, batch[:, ::-1]])].tolist()}
        assert not gone & {tuple(each) for each in seen.tolist()}


def test_batches_hold_roots_of_neighbouring_times(timed):
    train = np.arange(5, 115)
    for order in ("time", "shuffled"):
        sampler = sampler_of(timed, f"order={order}")
        cut = list(sampler.batches(train, SEED, 3, 25))
        assert sorted(np.concatenate(cut).tolist()) == train.tolist()
        assert [len(batch) for batch in cut] == [25, 25, 25, 25, 10]
        starts = [sampler.root_time[batch].min() for batch in cut]
        assert (np.argsort(starts, kind="stable").tolist() == list(range(5))) == (order == "time")
        inside = sorted((sampler.root_time[batch].min(), sampler.root_time[batch].max()) for batch in cut)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(inside))
    edges = TrainingEdges(timed, both_ways=False)
    cut = list(sampler_of(timed, "order=time").edge_batches(edges, SEED, 3, 500))
    times = [time_of(*timed.original_id[batch].T) for batch in cut]
    assert sum(map(len, cut)) == timed.edges
    assert all(first.max() <= second.min() for first, second in itertools.pairwise(times))
    again = sampler_of(timed).edge_batches(edges, SEED, 4, 500)
    assert [batch[0].tolist() for batch in again] != [batch[0].tolist() for batch in cut]


def test_splits_are_scored_in_groups_that_see_no_later_edge(timed):
    ids = np.arange(30, 100)
    sampler = sampler_of(timed).for_scoring((5, 5), {VAL: ids}, 32)
    groups = sampler.scoring_groups(VAL)
    assert sorted(np.concatenate(groups).tolist()) == ids.tolist()
    for number, group in enumerate(groups):
        key = DrawKey(VAL, SEED, 0, number)
        seen = block_edges(sampler.sample(key, group[::3]), timed)
        assert time_of(seen[:, 2], seen[:, 1]).max() <= sampler.root_time[group].min()
        again = sampler.neighbours(key, 0, group[:1])
        whole = sampler.neighbours(key, 0, group)
        assert again.neighbours.tolist() == whole.neighbours[: whole.indptr[1]].tolist()
    assert sampler.scoring_groups(PRESAMPLE) is None

    # Edges that are held back have no times: the newest edge of the topology bounds.
    free = sampler_of(timed, "draw=latest").for_scoring((5,), {}, 32)
    assert free.sample(DrawKey(VAL, SEED, 0, 0), ids)[0].edges == np.minimum(5, timed.degree(ids)).sum()


def test_a_vertex_without_in_edges_bounds_no_other(timed):
    indptr = np.append(timed.indptr, timed.edges)
    topology = replace(timed, indptr=indptr, original_id=np.append(timed.original_id, 10**6))
    for kind in (np.int64, np.float64):
        each = replace(topology, edge_time=topology.edge_time.astype(kind))
        lonely, roots = np.array([timed.vertices]), np.arange(8)
        found = sampler_of(each, "window=3").sample(KEY, roots, np.append(roots, lonely))
        assert (
            block_edges(found, each).tolist()
            == block_edges(sampler_of(timed, "window=3").sample(KEY, roots), timed).tolist()
        )
        assert sampler_of(each, "same-time=no", "window=3").sample(KEY, lonely)[0].edges == 0


def test_times_of_roots_are_read_from_a_file_by_original_id(timed, tmp_path):
    # Original ids are rows of the file.
    n = timed.vertices
    order = np.random.default_rng(0).permutation(n)
    topology = with_times(replace(timed, original_id=np.arange(n)))
    np.save(tmp_path / "t.npy", order.astype(np.float64))
    assert sampler_of(topology, f"root-time={tmp_path / 't.npy'}").root_time.tolist() == order.tolist()
    np.save(tmp_path / "half.npy", order + 0.5)
    np.save(tmp_path / "few.npy", order[1:])
    (tmp_path / "text.npy").write_text("no array")
    for name, sentence in [
        ("half", r"row 0 is .*whole numbers"),
        ("few", "one number for each of 120 vertices"),
        ("text", "cannot be read as an .npy file"),
        ("none", "cannot be read as an .npy file"),
    ]:
        with pytest.raises(ConfigError, match=sentence):
            sampler_of(topology, f"root-time={tmp_path}/{name}.npy")


def test_a_dataset_without_times_is_refused():
    config = Config.from_values({"data": "d", "sampling.sampler": "temporal"})
    with pytest.raises(ConfigError, match="--sampler temporal needs edge times, but d has none; import"):
        uses_times(config, SimpleNamespace(has_edge_time=False))
    assert uses_times(config, SimpleNamespace(has_edge_time=True))
    assert not uses_times(config.replaced({"sampling.sampler": "labor-0"}), SimpleNamespace(has_edge_time=True))


def test_times_stored_with_vertices_are_those_of_roots_unless_an_option_says_otherwise(timed, tmp_path):
    stored = np.random.default_rng(3).integers(-5, 60, timed.vertices)
    topology = replace(timed, vertex_time=stored)
    assert sampler_of(topology).root_time.tolist() == stored.tolist()
    assert sampler_of(topology, "root-time=latest-edge").root_time.tolist() == sampler_of(timed).root_time.tolist()
    np.save(tmp_path / "t.npy", stored[::-1])
    given = sampler_of(topology, f"root-time={tmp_path / 't.npy'}").root_time
    assert given.tolist() == stored[::-1][np.argsort(np.argsort(topology.original_id))].tolist()


def test_edges_that_the_topology_lacks_are_scored_by_groups(timed):
    scoring = sampler_of(timed).for_scoring((4, 3), {}, 10)
    newest = timed.edge_time.max()
    assert scoring.edge_groups(np.full(5, newest + 1), 2) is None
    assert sampler_of(timed, "window=3").for_scoring((4, 3), {}, 10).edge_groups(np.full(5, newest + 1), 2) is not None
    times = np.array([9, 3, 7, 1, 5])
    groups = scoring.edge_groups(times, 2)
    assert [sorted(times[group].tolist()) for group in groups] == [[1, 3], [5, 7], [9]]
    key = DrawKey(VAL, SEED, 0, 1)
    scoring.root_times(key, times[groups[1]])
    seen = block_edges(scoring.sample(key, np.arange(40)), timed)
    assert len(seen)
    assert time_of(seen[:, 2], seen[:, 1]).max() < 5
