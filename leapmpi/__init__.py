"""leapmpi: distributed training of graph neural networks where the features are, over MPI."""

__version__ = "0.1.0"
