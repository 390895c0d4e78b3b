"""Formats of `leapmpi export`, one file each.

A format has `SUMMARY`, `NAME` (default name of the output) and `write(source, path)`. An optional `SUFFIX` selects the
format by the name of the output.
"""
