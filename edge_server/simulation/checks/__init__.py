"""Checks that try a federation file before a run: its data, its network, a rehearsal of two rounds."""
