"""Trusted keys, the device's identity, and masked updates."""
