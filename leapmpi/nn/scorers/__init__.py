"""Scorers of edges, one per file. Each offers `build(width)`, a Scorer (leapmpi/nn/scorer.py) of embeddings so wide."""
