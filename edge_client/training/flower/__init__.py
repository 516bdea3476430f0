"""A Flower app as a device's local work."""
