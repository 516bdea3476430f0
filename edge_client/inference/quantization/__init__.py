"""Smaller and faster forms of an exported network: made, measured here, and the best of them kept."""
