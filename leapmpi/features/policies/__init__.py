"""Which remote rows a rank keeps copies of. One file per policy.

A policy is a function POLICY(access: AccessPattern) -> float64[n]: a score for each vertex of the graph.
"""
