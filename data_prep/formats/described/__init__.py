"""Graphs whose files a description names: the description in JSON or YAML, and rows spread over several files."""
