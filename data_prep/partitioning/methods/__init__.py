"""Partition methods: one file per method, each with `partition(graph, request) -> MethodResult`.

A method depends on graph and request alone, and keeps the capacities of `part_capacity` as far as it can; repairs and
numbering come after it (partitioning/postprocess.py). Instead of `partition`, a method may have `choose(graph,
request)`, which names other methods to try, in a tuple, and the reason; the one that cuts least edges counts.
"""
