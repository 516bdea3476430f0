"""Bridges to other systems, each with its own connection and thread."""
