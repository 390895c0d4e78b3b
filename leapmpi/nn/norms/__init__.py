"""Normalisation of rows: each by itself, or by the statistics of a whole batch.

Batch statistics are those of all ranks: what brings them together is given from above, and nothing here talks to ranks.
"""
