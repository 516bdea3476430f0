"""Weights from elsewhere that a run starts from: where they come from, and what of them fits the network."""
