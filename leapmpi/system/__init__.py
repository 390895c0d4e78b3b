"""Base of all other rooms: the process, its memory, its files, threads, time and random numbers.

In: paths, sizes, functions, keys of draws. Out: buffers, files that appear whole, seconds by phase, numbers.
Knows neither torch nor MPI.
"""
