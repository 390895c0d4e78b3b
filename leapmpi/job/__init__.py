"""Whole jobs: `train` and `evaluate` from their settings to their files, restart, records, banner.

In: a Config and MPI. Out: a run folder with records, weights and a summary. `run_training` reads from top to bottom.
"""
