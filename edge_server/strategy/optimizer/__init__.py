"""Server optimizers: how the aggregated change moves the global model."""
