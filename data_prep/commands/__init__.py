"""Commands of leapmpi-prep: one file per command, which `data_prep/cli.py` lists.

A command has HELP (one line), `add_arguments(parser)` and `run(arguments) -> exit code`, which alone imports anything
heavy. It raises a LeapmpiError with one sentence for whatever the user can mend.
"""
