"""The tasks of a round: which device trains what, and how the model reaches it."""
