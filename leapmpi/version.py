"""The version of leapmpi, which files and records name."""

VERSION = "0.1.0"
