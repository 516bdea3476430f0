"""Processes that examine updates and add them, beside the server's own."""
