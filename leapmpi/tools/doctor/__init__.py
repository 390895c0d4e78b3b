"""`leapmpi doctor`: what a job would run with, and what is wrong with it.

facts.py and links.py gather facts; machine_checks.py and job_checks.py find problems in them; examination.py does both
on all ranks and prints.
"""
