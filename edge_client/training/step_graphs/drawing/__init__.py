"""Draws step graphs with torch."""
