"""Sensors' messages recorded as the rows of an example store."""
