"""A Flower app as a device's local work: it trains, this package carries."""
