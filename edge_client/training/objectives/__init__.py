"""Local objectives: what algorithms add to a client's plain loss."""
