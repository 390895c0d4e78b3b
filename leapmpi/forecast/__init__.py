"""What strategies would send, compute and hold on any number of ranks, predicted in one process.

It runs the schedules, samplers and first-layer modes of training on virtual ranks, which cannot communicate. In: a
config, a dataset, numbers of ranks. Out: forecasts for `leapmpi plan`, and the choice of `--strategy auto`.
"""
