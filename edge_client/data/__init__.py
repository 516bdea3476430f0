"""Local data: labelled examples, where they come from and how they are shared out."""
