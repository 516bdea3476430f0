"""Recordings as data."""
