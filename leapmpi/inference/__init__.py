"""Exact inference: all layers over all in-neighbours, one layer at a time, every row computed once, by its owner."""
