"""Sampling: which in-neighbours the roots of an iteration aggregate.

In: the topology, a key (seed, epoch, iteration), roots. Out: Blocks, one per layer. Every draw is a pure function of
its key and of original vertex ids: the same on any number of ranks and threads, and for any partition.
"""
