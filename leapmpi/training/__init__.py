"""The training loop: one iteration after another, optimizer, caches, checkpoints.

In: a loaded dataset and model. Out: records of epochs, checkpoints, trained weights. `trainer` is the loop; models that
differ are trained by `ensemble_trainer`, tasks on edges by `edge_trainer`.
"""
