"""Edges as roots: the order in which an epoch visits them, their negatives, and draws that leave them out."""
