"""Weightings: how much each update counts."""
