"""Sampling from a topology that is spread over the ranks: each holds only the lists of its own vertices.

In: a shard of the topology, a sampler that draws from lists, roots. Out: Blocks, bit-identical to those of a whole
topology. New destinations of each hop are sent to their owners, which draw. Start with sharded_sampler.py.
"""
