"""Readings of the board: one small reader per source; none raises."""
