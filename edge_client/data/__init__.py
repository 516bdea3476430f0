"""Local data: labelled examples, their sources and their partition."""
