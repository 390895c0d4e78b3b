"""The program `leapmpi`: main.py finds the command, commands/ holds one module per command.

In: the words of the command line. Out: an exit code; errors of the user are one sentence on standard error.
"""
