"""What trials of models and updates of the client have in common."""
