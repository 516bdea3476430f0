"""Finished models: the registry of their versions, and the rollout of a version to devices."""
