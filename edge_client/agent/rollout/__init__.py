"""A device's part in a rollout: comparing the offered model, switching to it, watching it."""
