"""What a job would run with, and what is wrong with it: `leapmpi doctor`.

`rank`, `mpi`, `links` and `places` gather facts; `checks`, one file per subject, find problems in them; `examination`
does both on all ranks and prints.
"""
