"""Processes that take the devices' chunks off the server's hands, over MQTT shared subscriptions."""
