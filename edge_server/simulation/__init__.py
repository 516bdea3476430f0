"""Simulated federations: virtual devices in virtual time, with the state machines of a real federation."""
