"""The gateway of a site as a pure state machine: it relays, caches, examines and adds."""
