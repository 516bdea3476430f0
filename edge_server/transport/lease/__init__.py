"""The lease of a federation: one server at a time."""
