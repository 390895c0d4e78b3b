"""One layer of a full batch on one rank: forward, backward, and what crosses ranks for it.

In: the plan of a layer, the tensors of its block, the output of the layer below. Out: the layer's output; later the
gradient of the output below. Each way to feed a layer is one class; `step_of` says which one serves.
"""
