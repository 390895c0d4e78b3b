"""Samplers that a user writes: `--sampler FILE.py:CLASS`.

In: a class made from api.OwnSampler. compile.py loads and compiles it, samplers.py makes a Sampler of it.
"""
