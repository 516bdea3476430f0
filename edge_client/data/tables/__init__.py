"""Tables as data: rows, windows of rows, or series of readings become examples."""
