"""`leapmpi doctor`: what a job would run with, and what is wrong with it.

rank.py, mpi.py, links.py and folders.py gather facts; checks/, one file per subject, find problems in them;
examination.py does both on all ranks and prints.
"""
