"""All samplers with the options worth telling apart, and ways to make and read them in tests."""

from dataclasses import replace

import numpy as np

from leapmpi.config.options import SAMPLERS, parse_options
from leapmpi.dataset.topology import Topology
from leapmpi.sampling.sampler import Sampler, Setup
from leapmpi.system.counter_rng import TRAIN, DrawKey

KEY = DrawKey(TRAIN, 7, 1, 2)
SEED = 7

KINDS = {
    "node-wise": (),
    "with-replacement": (),
    "labor-0": (),
    "labor-0, fixed-size=no": ("fixed-size=no",),
    "labor-0, dependent": ("same-in-layers=yes", "kept-batches=3"),
    "labor-i": ("rounds=2",),
    "labor-i, unbiased": ("row-normalise=no",),
    "weighted": (),
    "weighted, unbiased": ("weights=degree", "row-normalise=no"),
    "random-walk": ("walks=9", "steps=3"),
    "fast-gcn": ("layer-size=40,25",),
    "fast-gcn, unbiased": ("layer-size=30", "row-normalise=no"),
    "cluster-gcn": ("clusters=12", "per-batch=4"),
    "graph-saint": ("draws=walk", "size=60", "walk-length=3", "subgraphs=4"),
    "graph-saint, edges": ("draws=edge", "size=60", "subgraphs=4"),
    "graph-saint, vertices": ("draws=node", "size=50", "subgraphs=4"),
    "temporal": (),
    "temporal, latest": ("draw=latest", "window=60", "same-time=no", "order=time"),
    "ladies": ("layer-size=30",),
    "ladies, unbiased": ("layer-size=30,45", "row-normalise=no"),
}
"""Options by name of the kind, which starts with the name of the sampler."""


def make(
    kind: str, topology: Topology, fanouts: tuple[int, ...], threads: int = 1, train: np.ndarray | None = None
) -> Sampler:
    """A sampler of `kind`; all vertices are training vertices unless said otherwise."""
    name = kind.partition(",")[0]
    member = SAMPLERS.load(name)
    train = np.arange(topology.vertices) if train is None else train
    topology = with_times(topology) if name == "temporal" and topology.edge_time is None else topology
    options = parse_options(member.options, KINDS[kind], name)
    return member.build(Setup(topology, fanouts, train, SEED, threads), options)


def time_of(source, destination):
    """The time of an edge between original ids, in [0, 100), by which tests need no look-up."""
    return (source * 37 + destination * 61 + source * destination) % 100


def with_times(topology: Topology) -> Topology:
    """The same topology, whose edges have times by the original ids of their ends."""
    original = topology.original_id
    destinations = np.repeat(original, np.diff(topology.indptr))
    return replace(topology, edge_time=time_of(original[topology.indices], destinations))


def weighted_edges(blocks, topology: Topology) -> np.ndarray:
    """float64[edges, 4]: hop, original ids of destination and source, and weight (1 where there is none), in order."""
    parts = [np.empty((0, 4))]
    for block in blocks:
        original = topology.original_id[block.src]
        weight = np.ones(block.edges) if block.weight is None else block.weight
        dst = np.repeat(original[: block.n_dst], np.diff(block.indptr))
        parts.append(np.stack([np.full(block.edges, block.hop), dst, original[block.indices], weight], axis=1))
    rows = np.concatenate(parts)
    return rows[np.lexsort(rows.T[::-1])]
