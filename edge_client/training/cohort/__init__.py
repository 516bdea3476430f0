"""Devices with the same network and plan that train together: one step is a step of all of them."""
