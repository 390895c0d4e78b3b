"""Metrics by name. `MEMBER` is a MetricMember (leapmpi/scoring/metric.py), or several in `SEVERAL`."""

SEVERAL = {
    **dict.fromkeys(("hits-1", "hits-10", "hits-20", "hits-50", "hits-100"), "hits"),
    **dict.fromkeys(("mae", "mse", "r2", "rmse"), "regression_errors"),
}
"""Modules by the names of the metrics that they offer together."""
