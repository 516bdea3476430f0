"""The session of a device with its server: a pure state machine, its events and its parts."""
