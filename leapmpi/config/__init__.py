"""Settings of a run: declarations, parsing, checks, and the command line that is made from them.

In: command-line words, TOML files, or nested values from Python. Out: a checked, frozen `Config` (schema.py), or a
ConfigError that names the key and the nearest known one. sections.py declares every setting.
"""
