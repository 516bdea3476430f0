"""Bounds that command lines, files and messages share; imports nothing."""

MAX_SECONDS = 1e9  # the longest duration, some 31 years: a time that far from now is still a date
