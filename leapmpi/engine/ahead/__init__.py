"""Mini-batches that are planned, sampled and fetched while earlier ones are trained."""
