"""Edges that are held back to validate and test on, by a share, by time or as the source says, and classes of edges."""
