"""Feature rows: where they are held, and how a rank gets those of any vertices.

In: vertex ids, this rank's shard, a communicator. Out: rows as tensors, scattered rows or sparse matrices.
README.md has the steps of a fetch and the files with device code.
"""
