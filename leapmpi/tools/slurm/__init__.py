"""Slurm jobs: a short site profile and a leapmpi command become one batch script, which a user reads and edits."""
