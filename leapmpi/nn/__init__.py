"""Graph neural networks over sampled blocks: tensors, aggregation, dropout, layers, models, loss."""
