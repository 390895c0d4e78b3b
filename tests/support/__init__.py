"""What the tests share: made graphs and datasets, plain references to compare with, and programs to start.

Nothing here is a test. `launch` starts real MPI jobs, `cluster` a Slurm of namespaces, `datasets` and `graphs` make
small data, `twin`, `draw_digest` and `traffic` are plain counterparts of the product's kernels and counters,
`equality` trains any choice of options beside a single process, `failing_job` and `stopped_job` are jobs in trouble.
"""
