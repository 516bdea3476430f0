"""Finished models: the registry of versions and their rollout to devices."""
