"""Negative samplers, one module each; `MEMBER` is a NegativesMember (leapmpi/sampling/negative_sampler.py)."""
