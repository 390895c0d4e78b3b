"""Kernels of the networks: sums over edges, and dense products whose sums have a fixed order.

In: tensors of a block, rows of features, weights. Out: tensors; gradients are in aggregate.py and gemm.py.
"""
