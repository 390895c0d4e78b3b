"""How any layer is fed: what its sources are, and how rows and shares of them reach the rank that computes it.

In: a mini-batch whose blocks are sampled, or the routes of a full batch. Out: outputs, loss and gradients, with
gradients returned to where rows were computed. README.md has the whole picture.
"""
