"""Sampling of in-neighbours for the roots of an iteration.

In: the topology, a key (seed, epoch, iteration), roots. Out: Blocks, one per layer. Every draw is a pure function of
its key and of original vertex ids. It is the same for any number of ranks and threads and any partition.
"""
