"""The verbs of the fleet service."""
