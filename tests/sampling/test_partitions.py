"""Datasets on disk: every cut of a graph gives the same batches and the same micrographs in original ids."""

import subprocess
import sys

import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.plan.homes import rank_offsets
from leapmpi.plan.planner import plan_leap, plan_pull
from leapmpi.sampling.epoch_order import batches, epoch_order
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support import twin
from tests.support.draw_digest import block_edges, digest_edges

pytestmark = pytest.mark.compiles

SEED, EPOCH = 11, 2


@pytest.fixture(scope="module")
def graph() -> Graph:
    topology = twin.random_topology(400, 6000, seed=5, hubs=3.0)
    split = np.random.default_rng(0).choice([names.TRAIN, names.VAL], 400).astype(np.int8)
    labels = np.zeros(400, np.int64)
    return Graph(
        topology.indptr, topology.indices, np.zeros((400, 2), np.float32), labels, split, topology.original_id, 1
    )


def epoch_digests(folder, ranks: int, plan: str) -> tuple[list[list[int]], list[str]]:
    """Roots in original ids, and the digest of what all ranks sample, of each batch of an epoch."""
    dataset = open_dataset(folder)
    topology = load_topology(dataset)
    offsets = rank_offsets(dataset.offsets, ranks)
    sampler = NodeWiseSampler(topology, (4, 3))
    order = epoch_order(dataset.splits.train, topology.original_id[dataset.splits.train], SEED, EPOCH)
    roots, digests = [], []
    for iteration, batch in enumerate(batches(order, 64)):
        schedule = plan_pull(batch, ranks) if plan == "pull" else plan_leap(batch, offsets, ranks)
        key = DrawKey(TRAIN, SEED, EPOCH, iteration)
        cells = [schedule.cell(r, t) for r in range(ranks) for t in range(schedule.time_steps)]
        edges = [block_edges(sampler.sample(key, cell), topology) for cell in cells]
        roots.append(topology.original_id[batch].tolist())
        digests.append(digest_edges(np.concatenate(edges)))
    return roots, digests


def test_partition_rank_count_and_plan_change_nothing(tmp_path, graph):
    rng = np.random.default_rng(1)
    seen = []
    for parts in (1, 3, 7):
        folder = tmp_path / str(parts)
        assignment = np.concatenate([np.arange(parts), rng.integers(0, parts, 400 - parts)]).astype(np.int32)
        write_dataset(folder, graph, assignment, parts, method="random", figures={}, seed=0)
        for ranks in {1, parts // 2 + 1, parts}:
            seen += [epoch_digests(folder, ranks, plan) for plan in ("pull", "leap")]
    assert len(seen[0][1]) > 2
    assert len(set(seen[0][1])) == len(seen[0][1])
    assert all(other == seen[0] for other in seen)


def test_sampling_and_planning_start_neither_torch_nor_mpi():
    modules = "system.counter_rng sampling.block sampling.node_wise sampling.epoch_order plan.homes plan.planner"
    code = "".join(f"import leapmpi.{name}\n" for name in modules.split())
    code += "import sys; print([name for name in ('torch', 'mpi4py') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
