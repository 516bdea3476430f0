"""What a network learns: what a label is, the loss, the metrics, and what the outputs mean."""
