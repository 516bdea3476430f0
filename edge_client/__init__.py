"""What runs on a board: agent, models, attention, pruning, training, export, inference."""
