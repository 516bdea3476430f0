"""Local objectives: what a client optimises in addition to its plain loss."""
