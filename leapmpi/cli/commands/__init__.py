"""The commands of `leapmpi`, one module each: `HELP`, `add_arguments(parser)` and `run(arguments) -> int`.

Importing a command is light; `run` alone imports anything heavy.
"""
