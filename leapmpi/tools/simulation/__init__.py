"""What-if: what strategies would move and take on any number of ranks, in one process and without MPI.

Made of the objects that training uses (schedules, sampler, remote modes), which here cannot talk to anybody.
"""
