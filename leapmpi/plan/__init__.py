"""Planning: who trains which root, when and as which model, and what an iteration will move and take.

In: a batch of roots, the ranges of vertices of the ranks, costs of roots. Out: a Schedule, predicted bytes and seconds.
Arithmetic on arrays, without communicator or device.
"""
