"""Link prediction: training on edges, ranking edges that are held back, and what their metrics read."""
