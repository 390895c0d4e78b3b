"""Planning: who trains which root, when and as which model; predicted bytes, memory and seconds.

In: a batch of roots, the ranges of vertices of the ranks, costs of roots. Out: a Schedule, predicted bytes and seconds.
Arithmetic on arrays, without communicator or device.
"""
