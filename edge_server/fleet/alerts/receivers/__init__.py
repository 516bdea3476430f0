"""Receivers of notifications: one module each."""
