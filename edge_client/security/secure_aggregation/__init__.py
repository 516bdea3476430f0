"""Secure aggregation on the device: what it sends is masked, and only sums over many can be unmasked."""
