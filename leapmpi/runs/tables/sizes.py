"""The former place of `size_text`; goes when engine and training import it from `leapmpi.runs.tables.text`."""

from leapmpi.runs.tables.text import size_text

__all__ = ["size_text"]
