"""Samplers written by users: `--sampler FILE.py:CLASS`.

In: a class derived from api.OwnSampler. compile.py loads and compiles it, samplers.py makes a Sampler of it.
"""
