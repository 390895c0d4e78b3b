"""Start of a job: MPI, checks of settings, dataset and model in place on every rank.

In: a Config. Out: a `Loaded` dataset, model and sampler on each rank. `session` stands between start and end of MPI,
`setup` loads, `role_loading` does so where ranks have roles.
"""
