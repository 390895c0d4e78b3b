"""Partitioning: the vertices of a graph are divided into parts, one or more for each rank of a training job.

In: a Graph and a PartitionRequest. Out: a Partition (the part of each vertex, and counts per part), and a CutReport.
`partition_graph` is the entrance. Algorithms are the members of `methods/`; `multilevel/` serves the method grem.
"""
