"""Whether devices end below what their own data alone would have given them: `make alone` writes the table."""
