"""HDF5 files of leapmpi: contiguous arrays and root attributes, each with a digest.

In: NumPy arrays by blocks of rows, and plain attributes. Out: files, and memory maps of arrays that were checked
against the size of the file. names.py lists every name in the formats.
"""
