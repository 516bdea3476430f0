"""Aggregation: from updates of different sub-models to one change of the global model."""
