"""Formats of `leapmpi export`, one file each: `SUMMARY`, `NAME` (of the output when none is given) and
`write(source, path)`. `SUFFIX`, if there is one, tells the format by the name of the output.
"""
