"""Metrics by name. `MEMBER` is a MetricMember (leapmpi/scoring/metric.py), or several in `SEVERAL`."""

SEVERAL = {
    **{f"{name}-{most}": "best_labels" for name in ("map", "precision", "recall") for most in (1, 5, 10, 12, 20, 50)},
    **dict.fromkeys(("hits-1", "hits-3", "hits-10", "hits-20", "hits-50", "hits-100"), "hits"),
    **dict.fromkeys(("mae", "mse", "r2", "rmse"), "regression_errors"),
}
"""Modules by the names of the metrics that they offer together."""
