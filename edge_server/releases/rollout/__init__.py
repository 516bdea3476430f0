"""Bringing a version of the registry to devices: group by group, and back where it does not do."""
