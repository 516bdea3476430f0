"""Updates that pass every check of form and harm all the same: `make attacks` plays them against recipes."""
