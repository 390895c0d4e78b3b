"""Full-batch training: one iteration is all training vertices, computed layer by layer over all ranks.

In: the topology, the training vertices, and for each layer which remote inputs a rank caches (computes itself). Out:
the blocks and routes of each rank, kept for the whole run, and an engine that trains on them.
"""
