"""Scorers of edges, one module each; `MEMBER` is a ScorerMember (leapmpi/nn/scorer.py)."""
