"""data_prep, the program leapmpi-prep: from a graph in any format to a dataset for leapmpi, on one machine.

In: files of a graph. Out: one checked graph file, and a dataset of parts. README.md has the map of the rooms.
"""
