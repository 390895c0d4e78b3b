"""Sampling: pure functions from a key and roots to Blocks, the same on every rank, thread and partition."""
