"""Checks of everything that a device needs (libraries, broker, clock, memory, disk), one line each with a
remedy."""
