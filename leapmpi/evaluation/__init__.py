"""Scores of a model on a split, over all ranks: vertices, links, classes of edges.

In: a loaded model and a split. Out: metrics, with breakdowns by class, degree and part.
"""
