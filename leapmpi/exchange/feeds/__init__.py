"""Feeds: one layer on one rank, forward and backward, with one module for each kind of item that is received.

In: the routes of a layer, the tensors of its block, the output of the layer below. Out: the layer's output; later the
gradient of the output below. `feed_of` chooses.
"""
