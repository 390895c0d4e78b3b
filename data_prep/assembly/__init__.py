"""Assembly: from what a source read to a checked graph file, and random graphs in place of a source.

In: a RawGraph and AssemblyOptions. Out: a Graph with adjacency, features, labels and splits, a Summary of what was
done, and the names of vertices in a file beside the graph.
"""
