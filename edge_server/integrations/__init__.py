"""Bridges to other systems, each in a thread of its own."""
