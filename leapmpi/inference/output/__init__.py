"""Rows of outputs on their way to a file: brought to the ranks in the order of the file, and written by all of them."""
