"""How good predictions are: what a metric is, and the counts and rankings that metrics are made of; plain numpy.

Vertices without a label (-1, or NaN in a column) do not count. In: outputs and labels. Out: scores.
"""
