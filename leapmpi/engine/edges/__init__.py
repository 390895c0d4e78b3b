"""Iterations over edges: batches whose roots are edges, their loss, and the features that edges carry."""
