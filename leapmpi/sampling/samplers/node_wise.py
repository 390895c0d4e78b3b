"""Sampler `node-wise`: at most fan-out distinct in-neighbours of each destination, all equally likely (GraphSAGE)."""

from __future__ import annotations

from leapmpi.config.options import SamplerMember
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import LISTS, Setup


def build(setup: Setup, options: None) -> NodeWiseSampler:
    """Build the sampler. Raises ConfigError for an invalid fan-out."""
    return NodeWiseSampler(setup.topology, setup.fanouts, setup.threads, setup.relation_fanouts)


MEMBER = SamplerMember(build, sharded=LISTS, typed=True)
