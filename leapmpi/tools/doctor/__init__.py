"""Implementation of `leapmpi doctor`: the environment of a job, and its problems.

facts.py and links.py gather facts; machine_checks.py and job_checks.py find problems in them; examination.py runs both
on all ranks and prints.
"""
