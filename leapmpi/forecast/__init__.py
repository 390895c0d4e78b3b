"""Forecasts of traffic, computation and memory of strategies on any number of ranks, made in one process.

It runs the schedules, samplers and first-layer modes of training on virtual ranks, which cannot communicate. In: a
config, a dataset, numbers of ranks. Out: forecasts for `leapmpi plan`, and the choice of `--strategy auto`.
"""
