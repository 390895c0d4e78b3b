"""Sampling from a topology that is spread over the ranks: each holds the lists of its own vertices alone.

In: a shard of the topology, a sampler that draws from lists, roots. Out: Blocks, equal to the bit to those of a whole
topology. Each hop's new destinations are named to their owners, which draw. Start with sampler.py.
"""
