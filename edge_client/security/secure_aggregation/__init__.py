"""Secure aggregation on the device: its updates are masked, and only sums over many can be unmasked."""
