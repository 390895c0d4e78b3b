"""What the edges of a sample carry: their numbers in the topology, and their weights, looked up after the draws.

Where the topology is on every node, weights are looked up where they are needed and never sent. A sampler draws as it
would without them; `with_edge_data` lets any sampler's blocks carry them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from leapmpi.config.options import SAMPLERS
from leapmpi.config.schema import Config
from leapmpi.config.setting import names_code
from leapmpi.dataset.edge_splits import edge_place
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.block import Block
from leapmpi.sampling.sampler import Sampler, WrappingSampler
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled


@compiled
def _look_up(indptr, neighbours, destinations, topology_indptr, topology_indices, original_id, numbers):
    """Write the position in the topology of each drawn edge; returns the first one that is not there, or -1."""
    for i in range(len(destinations)):
        place, stop = topology_indptr[destinations[i]] - 1, topology_indptr[destinations[i] + 1]
        for e in range(indptr[i], indptr[i + 1]):
            # In-neighbours ascend by original id, and so do drawn ones: often the next one follows.
            vertex, place = np.int64(neighbours[e]), place + 1
            if place >= stop or np.int64(topology_indices[place]) != vertex:
                place = edge_place(vertex, destinations[i], topology_indptr, topology_indices, original_id)
                if place < 0:
                    return e
            numbers[e] = place
    return -1


@compiled
def _weigh(indptr, numbers, edge_weight, weight, drawn):
    """Write the weight of each edge, and the sum of those of each destination."""
    for i in range(len(drawn)):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            weight[e] = edge_weight[numbers[e]]
            total += weight[e]
        drawn[i] = total


def edge_numbers(
    topology: Topology, indptr: np.ndarray, neighbours: np.ndarray, destinations: np.ndarray
) -> np.ndarray:
    """int64[edges]: the positions in `topology` of edges from `neighbours` to `destinations`.

    indptr: int64[n + 1], where the edges of each destination start; neighbours: integers[edges]; destinations:
    int64[n]. Raises ConfigError where there is no such edge.
    """
    numbers = np.empty(len(neighbours), np.int64)
    arrays = topology.indptr, topology.indices, topology.original_id
    if (missing := _look_up(indptr, neighbours, destinations, *arrays, numbers)) >= 0:
        i = int(np.searchsorted(indptr, missing, "right")) - 1
        names = topology.original_id[[neighbours[missing], destinations[i]]]
        raise ConfigError(
            f"the sampler joins vertices {names[0]} and {names[1]} (original ids), between which there is no edge that "
            "could carry anything; choose another --sampler, or --edge-weights ignore and a model that reads no "
            "features of edges"
        )
    return numbers


def numbers_of_edges(topology: Topology, edges: np.ndarray) -> np.ndarray:
    """int64[k]: the positions in `topology` of `edges` int64[k, 2], all of which it must have (else ConfigError)."""
    sources, destinations = np.ascontiguousarray(edges.T)
    return edge_numbers(topology, np.arange(len(edges) + 1), sources, destinations)


def drawn_weights(
    topology: Topology, indptr: np.ndarray, neighbours: np.ndarray, destinations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers int64[edges] and weights float32[edges] of drawn edges, and float64[n], the sum by destination.

    Arguments and errors are those of `edge_numbers`; the topology has weights.
    """
    assert topology.edge_weight is not None, "the caller has seen that there are weights"
    numbers = edge_numbers(topology, indptr, neighbours, destinations)
    weight, drawn = np.empty(len(numbers), np.float32), np.empty(len(destinations))
    _weigh(indptr, numbers, topology.edge_weight, weight, drawn)
    return numbers, weight, drawn


def with_weights(block: Block, topology: Topology, numbers: bool = False) -> Block:
    """`block` with what its edges carry; itself where the topology has no weights, and `numbers` are not wanted."""
    if topology.edge_weight is None or topology.weight_sum is None:
        if not numbers:
            return block
        return replace(block, edge_numbers=edge_numbers(topology, block.indptr, block.neighbours, block.dst))
    found, weight, drawn = drawn_weights(topology, block.indptr, block.neighbours, block.dst)
    return replace(
        block,
        edge_numbers=found,
        edge_weight=weight,
        drawn_weight=drawn,
        src_weight_sum=topology.weight_sum[block.src],
    )


class EdgeDataSampler(WrappingSampler):
    """Draws as `inner` does; its blocks carry what edges carry."""

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        return [with_weights(block, self.topology, numbers=True) for block in self.inner.sample(key, roots, batch)]

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        return with_weights(self.inner.hop(key, hop, destinations, batch), self.topology, numbers=True)


def with_edge_data(sampler: Sampler, numbers: bool = False) -> Sampler:
    """`sampler`, whose blocks carry what the edges of its topology carry, and their `numbers` if wanted."""
    if sampler.sharded:
        # Owners look up what the edges of their draws carry.
        return sampler
    return EdgeDataSampler(sampler) if numbers or sampler.topology.edge_weight is not None else sampler


def uses_weights(config: Config, dataset: Dataset) -> bool:
    """Whether the weights of the dataset's edges are used: it has some, and they are not to be ignored."""
    return dataset.has_edge_weight and config.sampling.edge_weights == "use"


def reads_times(config: Config) -> bool:
    """Whether the sampler reads the times of edges, in training and in evaluation."""
    name = config.sampling.sampler
    return not names_code(name) and getattr(SAMPLERS.load(name), "READS_TIMES", False)


def uses_times(config: Config, dataset: Dataset) -> bool:
    """Whether the sampler reads the times of edges. Raises ConfigError where it does and the dataset has none."""
    if not reads_times(config):
        return False
    if not dataset.has_edge_time:
        raise ConfigError(
            f"--sampler {config.sampling.sampler} needs the times of edges, and {config.data} has none; import the "
            "graph with times (such as --edge-columns time), or choose another --sampler"
        )
    return True
