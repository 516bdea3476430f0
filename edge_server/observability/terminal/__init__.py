"""What a person or a program sees of a run while it goes on, and the tables at its end."""
