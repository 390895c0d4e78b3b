"""Storage of a rank's feature rows: in files and memory, in GPU memory, or in host memory that a GPU reads.

In: mapped rows of this rank's parts, a device, how much memory rows may take. Out: shards, as those of host_shard.py.
"""
