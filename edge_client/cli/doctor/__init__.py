"""Checks of what a device needs: libraries, trainers, broker, clock, memory, disk; one line each."""
