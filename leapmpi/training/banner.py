"""What a run starts with, told once: ranks, hosts, devices, parts, bytes, batch, what will move, which MPI."""

from __future__ import annotations

import os
from collections import defaultdict

from leapmpi.config import Config
from leapmpi.strategies._iteration import Strategy
from leapmpi.training.loading import Loaded, direct_path
from leapmpi.training.loop import size_text
from leapmpi.world import World, library_name, load_mpi


def rank_facts(world: World, loaded: Loaded) -> dict:
    """What rank 0 needs from every rank for the banner."""
    device = loaded.at.device
    return {
        "host": world.host,
        "node": world.node,
        "device": str(device),
        "parts": [loaded.parts.start, loaded.parts.stop - 1],
        "features": loaded.shard_bytes,
        "threads": world.threads,
        "process": os.getpid(),
    }


def lines(config: Config, world: World, loaded: Loaded, strategy: Strategy, facts: list[dict]) -> list[str]:
    """The banner, given the `rank_facts` of all ranks."""
    dataset, topology = loaded.dataset, loaded.topology
    topology_bytes = topology.indptr.nbytes + topology.indices.nbytes + topology.original_id.nbytes
    copies = 1 if loaded.topology_held == "one copy per node" else None
    batch = min(config.train.batch_size, len(dataset.splits.train))
    return [
        f"data {config.data}: {dataset.vertices:,} vertices, {dataset.edges:,} edges, {dataset.feature_dim} features, "
        f"{dataset.classes} classes, {dataset.parts} parts ({dataset.attributes.get('method', 'unknown')})",
        f"ranks {world.size} on {world.nodes} node{'s' * (world.nodes > 1)}, "
        f"MPI {library_name(load_mpi())}, GPU data {_device_path(config, loaded)}",
        *_rank_lines(facts),
        *_node_lines(facts, topology_bytes, copies),
        f"batch {batch:,} roots, about {batch / world.size:,.0f} per rank; {strategy.time_steps} time step"
        f"{'s' * (strategy.time_steps > 1)}; fan-out {fanout_text(config.sampling.fanout)}; "
        f"model {config.model.name}, {loaded.at.parameters.count:,} parameters ({config.train.dtype})",
        _moves(config, world, loaded, strategy),
    ]


def fanout_text(fanout: tuple[int, ...]) -> str:
    """'10,10' or 'all,all'."""
    return ",".join("all" if each == -1 else str(each) for each in fanout)


def _device_path(config: Config, loaded: Loaded) -> str:
    if loaded.at.device.type != "cuda":
        return "not used (CPU)"
    direct, why = direct_path(config.run.mpi_device_path)
    return f"{'handed to MPI directly' if direct else 'staged through pinned host memory'} ({why})"


def _rank_lines(facts: list[dict]) -> list[str]:
    def parts(fact: dict) -> str:
        first, last = fact["parts"]
        return f"part {first}" if first == last else f"parts {first}-{last}"

    return [
        f"rank {rank}: {fact['host']}, {fact['device']}, {fact['threads']} thread{'s' * (fact['threads'] > 1)}, "
        f"{parts(fact)}, features {size_text(fact['features'])}"
        for rank, fact in enumerate(facts)
    ]


def _node_lines(facts: list[dict], topology_bytes: int, copies: int | None) -> list[str]:
    nodes = defaultdict(list)
    for fact in facts:
        nodes[fact["node"]].append(fact)
    held = "once" if copies else "by each rank"
    return [
        f"node {node}: {members[0]['host']}, {len(members)} rank{'s' * (len(members) > 1)}, "
        f"features {size_text(sum(fact['features'] for fact in members))}, "
        f"topology {size_text(topology_bytes * (copies or len(members)))} (held {held})"
        for node, members in sorted(nodes.items())
    ]


_REMOTE = {
    "raw": "raw rows of vertices at home elsewhere",
    "projected": "projected rows of vertices at home elsewhere and their gradients",
    "partial": "projected partial sums of destinations with neighbours elsewhere and their gradients",
    "ring": "models with the blocks of their roots and what their first layer gathers, past all ranks and back",
    "columns": "blocks of the first layer to all ranks, every rank's partial sums (gat: projected rows) for them and "
    "their gradients",
}


def _moves(config: Config, world: World, loaded: Loaded, strategy: Strategy) -> str:
    if world.size == 1:
        return "moves between ranks: nothing, there is one rank"
    size = loaded.at.parameters.shared_gradients.nbytes
    moving = [_REMOTE[strategy.remote_name], f"gradients ({size_text(size)})"]
    if config.strategy.name == "leap" and strategy.time_steps > 1 and config.strategy.migrate == "ring":
        moving.append(f"models with gradients ({size_text(2 * size)} a hop, {strategy.time_steps - 1} hops)")
    return "moves between ranks in an iteration: " + ", ".join(moving)
