"""Implementation of `leapmpi submit`: jobs for Slurm, PBS, Flux and Kubernetes.

In: a site profile (a short TOML file) and a leapmpi command. Out: one batch script or manifest, readable and editable.
"""
