"""Alerts: rules over the devices' state, the life of an alert, and its delivery to receivers."""
