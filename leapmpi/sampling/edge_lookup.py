"""Data of the edges of a sample: their numbers in the topology and their weights, looked up after the draws.

If every node has the topology, weights are looked up where they are needed and never sent. They do not affect the
draws; `with_edge_data` adds them to the blocks of any sampler.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from leapmpi.config.options import SAMPLERS, options_of
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
    """Write the position in the topology of each drawn edge; return the first missing edge, or -1."""
    for i in range(len(destinations)):
        place, stop = topology_indptr[destinations[i]] - 1, topology_indptr[destinations[i] + 1]
        for e in range(indptr[i], indptr[i + 1]):
            # Both lists ascend by original id, so the next entry is often the one.
            vertex, place = np.int64(neighbours[e]), place + 1
            if place >= stop or np.int64(topology_indices[place]) != vertex:
                place = edge_place(vertex, destinations[i], topology_indptr, topology_indices, original_id)
                if place < 0:
                    return e
            numbers[e] = place
    return -1


@compiled
def _weigh(indptr, numbers, edge_weight, weight, drawn):
    """Write the weight of each edge, and the sum of weights of each destination."""
    for i in range(len(drawn)):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            weight[e] = edge_weight[numbers[e]]
            total += weight[e]
        drawn[i] = total


def edge_numbers(
    topology: Topology, indptr: np.ndarray, neighbours: np.ndarray, destinations: np.ndarray
) -> np.ndarray:
    """Return the positions in `topology` of the edges from `neighbours` to `destinations`: int64[edges].

    indptr: int64[n + 1], first edge of each destination; neighbours: integers[edges]; destinations: int64[n]. Raises
    ConfigError for a missing edge.
    """
    numbers = np.empty(len(neighbours), np.int64)
    arrays = topology.indptr, topology.indices, topology.original_id
    if (missing := _look_up(indptr, neighbours, destinations, *arrays, numbers)) >= 0:
        i = int(np.searchsorted(indptr, missing, "right")) - 1
        names = topology.original_id[[neighbours[missing], destinations[i]]]
        raise ConfigError(
            f"the sampler joins vertices {names[0]} and {names[1]} (original ids), which have no edge and so no edge "
            "data; choose another --sampler, or --edge-weights ignore and a model without edge "
            "features"
        )
    return numbers


def numbers_of_edges(topology: Topology, edges: np.ndarray) -> np.ndarray:
    """Return the positions in `topology` of `edges` int64[k, 2]: int64[k]. Raises ConfigError for a missing edge."""
    sources, destinations = np.ascontiguousarray(edges.T)
    return edge_numbers(topology, np.arange(len(edges) + 1), sources, destinations)


def drawn_weights(
    topology: Topology, indptr: np.ndarray, neighbours: np.ndarray, destinations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers int64[edges] and weights float32[edges] of drawn edges, and float64[n], the sum by destination.

    Arguments and errors are those of `edge_numbers`; the topology has weights.
    """
    assert topology.edge_weight is not None, "the caller has seen that there are weights"
    numbers = edge_numbers(topology, indptr, neighbours, destinations)
    weight, drawn = np.empty(len(numbers), np.float32), np.empty(len(destinations))
    _weigh(indptr, numbers, topology.edge_weight, weight, drawn)
    return numbers, weight, drawn


def with_weights(block: Block, topology: Topology, numbers: bool = False) -> Block:
    """Return `block` with its edge data; unchanged if the topology has no weights and `numbers` is False."""
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
    """Sampler with the draws of `inner` and edge data in its blocks."""

    def sample(self, key: DrawKey, roots: np.ndarray, batch: np.ndarray | None = None) -> list[Block]:
        return [with_weights(block, self.topology, numbers=True) for block in self.inner.sample(key, roots, batch)]

    def hop(self, key: DrawKey, hop: int, destinations: np.ndarray, batch: np.ndarray | None = None) -> Block:
        return with_weights(self.inner.hop(key, hop, destinations, batch), self.topology, numbers=True)


def with_edge_data(sampler: Sampler, numbers: bool = False) -> Sampler:
    """Return `sampler` with edge data of its topology in its blocks, and edge `numbers` if requested."""
    if sampler.sharded:
        # Owners add the edge data of their draws.
        return sampler
    return EdgeDataSampler(sampler) if numbers or sampler.topology.edge_weight is not None else sampler


def uses_weights(config: Config, dataset: Dataset) -> bool:
    """Return whether the dataset has edge weights and the settings use them."""
    return dataset.has_edge_weight and config.sampling.edge_weights == "use"


def reads_times(config: Config) -> bool:
    """Return whether the sampler reads the times of edges, in training and in evaluation."""
    name = config.sampling.sampler
    return not names_code(name) and SAMPLERS.load(name).reads_times


def bounds_by_root(config: Config) -> bool:
    """Return whether each root bounds by its own time what is drawn for it (root_bounds.py)."""
    sampling = config.sampling
    return (
        reads_times(config) and getattr(options_of(SAMPLERS, sampling.sampler, sampling.options), "bound", "") == "root"
    )


def uses_times(config: Config, dataset: Dataset) -> bool:
    """Return whether the sampler reads the times of edges. Raises ConfigError if the dataset has none."""
    if not reads_times(config):
        return False
    if not dataset.has_edge_time:
        raise ConfigError(
            f"--sampler {config.sampling.sampler} needs edge times, but {config.data} has none; import the "
            "graph with times (such as --edge-columns time), or choose another --sampler"
        )
    return True
