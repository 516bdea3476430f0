"""Local training: the loop, objectives, optimizers, checkpoints and cost models."""
