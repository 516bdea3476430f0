"""Secure aggregation on the server: it brings devices together, adds what they mask, unmasks only sums."""
