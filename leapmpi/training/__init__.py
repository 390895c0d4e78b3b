"""A run from start to end: the dataset in place, the loop, evaluation, checkpoints, restart.

In: a Config and MPI. Out: a run folder with records, weights and a summary. `run_training` is the whole run, `session`
what stands between start and end of MPI, `setup` brings data and model into place, `trainer` is the loop; models that
differ are trained by `ensemble_trainer`; `records` is what a run tells of itself.
"""
