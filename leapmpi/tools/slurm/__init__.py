"""Implementation of `leapmpi submit`: Slurm batch scripts.

In: a site profile (a short TOML file) and a leapmpi command. Out: one batch script, readable and editable.
"""
