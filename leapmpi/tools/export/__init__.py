"""Implementation of `leapmpi export`: contents of a run folder in the formats of other tools, during the run too.

In: a run folder. Out: weights in safetensors, or settings and numbers of epochs for trackers. Training imports none of
this.
"""
