"""Broadcast of a model to several devices at once."""
