"""Devices in Home Assistant: discovery, states, and an update that its Install button brings to a device."""
