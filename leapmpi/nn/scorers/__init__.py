"""Scorers of edges, one per file. Each offers `build(width)`, a Scorer (leapmpi/nn/scorer.py) of embeddings so wide.

One that can tell classes apart takes `build(width, classes)`: without `classes` (0), it gives one score.
"""
