"""Graphs and partitioned datasets: arrays, files, checks and identity. `data_prep/FORMAT.md` is the format.

In: a Graph, from data_prep or a graph file, and a part number per vertex. Out: a dataset folder, and from it Parts
(mapped arrays), splits and the Topology. Start with graph.py, partitioned.py and topology.py; hdf5/ reads and writes
single files.
"""
