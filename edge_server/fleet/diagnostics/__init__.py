"""Asks devices for diagnostics: a pure state machine, the service's part, and an operator's connection."""
