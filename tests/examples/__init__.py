"""The guide's examples on real data, as a table: `python -m tests.examples`."""
