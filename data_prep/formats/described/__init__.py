"""Graphs whose files a description names: the description in JSON or YAML, and rows that lie in several files."""
