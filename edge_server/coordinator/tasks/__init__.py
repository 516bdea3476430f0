"""The tasks of a round, and the blobs that bring the model to its devices."""
