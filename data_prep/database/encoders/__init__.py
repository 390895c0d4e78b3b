"""One file per kind of column encoder."""
