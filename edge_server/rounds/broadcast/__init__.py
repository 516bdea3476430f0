"""The broadcast of a model to several devices at once."""
