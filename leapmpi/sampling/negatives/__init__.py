"""Negative samplers, one per file. Each offers `NEGATIVES`, a sub-class of NegativeSampler."""
