"""`leapmpi export`: what a run folder holds, in the formats of other tools; also while the run goes on.

In: a run folder. Out: weights in safetensors, or settings and numbers of epochs for trackers. Training imports none.
"""
