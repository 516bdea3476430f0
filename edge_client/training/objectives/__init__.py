"""Local objectives: what a client optimises beside its plain loss."""
