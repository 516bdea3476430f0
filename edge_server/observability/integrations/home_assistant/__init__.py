"""Devices in Home Assistant: discovery, states, and an Install button for model versions."""
