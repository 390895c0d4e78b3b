"""File formats that several sources share, and one module each for the long ones (BVGraph, MATLAB, torch.save).

In: a file. Out: numpy arrays, SparseRows, tables by columns, or streams of edges. A damaged file is a DataError that
names the place; large files are read in chunks or mapped. Nothing here knows what a graph's vertices mean.
"""
