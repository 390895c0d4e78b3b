"""Scores of predictions: metrics, and the counts and rankings from which they are made; plain numpy.

Vertices without a label (-1, or NaN in a column) do not count. In: outputs and labels. Out: scores.
"""
