"""Rollout of a registry version to devices, group by group, and back if it fails."""
