"""Everything that crosses ranks: the start of MPI, and exchanges of arrays between ranks.

In: arrays (numpy, or torch on the host or a GPU) and the kind they are counted as. Out: the arrays of other ranks, and
the bytes sent by kind. No other room calls MPI; see README.md.
"""
