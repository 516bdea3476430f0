"""Whether devices end below what their own data alone would have given: `make alone` prints the table."""
