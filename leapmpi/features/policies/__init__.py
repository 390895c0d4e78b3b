"""Which remote rows a rank keeps copies of: one file per policy, each a function from an `Access` to scores."""
