"""Secure aggregation on the server: introduce devices to each other, add masked updates, unmask sums only."""
