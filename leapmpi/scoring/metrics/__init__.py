"""Metrics by name. A module offers `METRIC`, a sub-class of Metric (leapmpi/scoring/metric.py).

A module of `SEVERAL` offers in `METRIC` what makes each of its metrics, by name.
"""

SEVERAL = {
    **dict.fromkeys(("hits-1", "hits-10", "hits-20", "hits-50", "hits-100"), "hits"),
    **dict.fromkeys(("mae", "mse", "r2", "rmse"), "regression_errors"),
}
"""Modules by the names of the metrics that they offer together."""
