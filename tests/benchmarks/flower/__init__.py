"""The same federation with Flower, for comparison."""
