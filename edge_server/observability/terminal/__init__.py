"""Output of a run to the terminal: live view, plain lines or JSON, and the final tables."""
