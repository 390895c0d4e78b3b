"""The feeding of any layer: its sources, and the way of their rows and shares to the rank that computes it.

In: a mini-batch whose blocks are sampled, or the routes of a full batch. Out: outputs, loss and gradients, with
gradients returned to the ranks that computed the rows. README.md has the whole picture.
"""
