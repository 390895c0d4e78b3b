"""The commands of `leapmpi`, one module each: `HELP`, `add_arguments(parser)` and `run(arguments) -> int`.

Importing a command is light, since --help does it; only `run` imports torch, mpi4py and the like.
"""
