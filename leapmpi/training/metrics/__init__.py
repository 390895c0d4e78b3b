"""One file per metric; each offers `METRIC`, a sub-class of Metric (leapmpi/training/scoring/metric.py)."""
