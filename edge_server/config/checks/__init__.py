"""Checks of a federation file: which settings and components go together."""
