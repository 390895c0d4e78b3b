"""Semi-external multilevel partitioning: the edges stay on disk and stream by in chunks.

What is held is a few words per vertex, one chunk, and working graphs of bounded size. A large graph is clustered and
contracted while it streams (Meyerhenke, Sanders, Schulz: "Partitioning complex networks via size-constrained
clustering", SEA 2014); the small graph is cut, and the cut is refined while the graph streams again.
"""
