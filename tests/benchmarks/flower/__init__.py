"""The same federation with Flower, beside ours."""
