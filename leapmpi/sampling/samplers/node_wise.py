"""Sampler `node-wise`: at most fan-out distinct in-neighbours of each destination, all equally likely (GraphSAGE)."""

from __future__ import annotations

from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import LISTS, Setup

SHARDED = LISTS


def build(setup: Setup, options: None) -> NodeWiseSampler:
    """Build the sampler. Raises ConfigError for an invalid fan-out."""
    return NodeWiseSampler(setup.topology, setup.fanouts, setup.threads)
