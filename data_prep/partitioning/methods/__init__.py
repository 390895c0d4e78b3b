"""Ways to cut a graph: one file per method, each with `partition(graph, request) -> int32[n]`, the part of each vertex.

A method keeps the caps of its request (data_prep/partitioning/request.py) and depends on graph and request alone.
data_prep/partitioning/finishing.py has what most do last.
"""

from leapmpi.registry import Registry

METHODS = Registry("partition method", "data_prep.partitioning.methods")
