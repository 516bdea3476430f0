"""A device's part in a rollout: the offered model on trial beside the one that it serves."""
