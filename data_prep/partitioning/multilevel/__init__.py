"""Semi-external multilevel partitioning, the algorithm of method grem: edges stay on disk and stream by in chunks.

In: an AdjacencyStream. Out: int32[n] parts. Held: some words per vertex, one chunk, and graphs of bounded size. The
graph is clustered and contracted while it streams (Meyerhenke, Sanders, Schulz: "Partitioning complex networks via
size-constrained clustering", SEA 2014), the small graph is partitioned, and the parts are refined on the way back.
"""
