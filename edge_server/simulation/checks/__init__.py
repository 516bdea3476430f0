"""Checks of a federation file before a run: its data, its network, and a rehearsal of two rounds."""
