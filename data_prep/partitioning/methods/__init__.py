"""Partition methods, one module each; `MEMBER` is a PartitionMethod (data_prep/partitioning/method_registry.py).

`partition(graph, request) -> MethodResult` depends on graph and request alone, and keeps the capacities of
`part_capacity` as far as it can; repairs and numbering come after it (partitioning/postprocess.py). Instead, a method
may have `choose(graph, request)`, which names other methods to try, and the reason; the smallest edge cut counts.
"""
