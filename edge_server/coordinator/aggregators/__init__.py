"""Processes of their own that examine updates and add them."""
