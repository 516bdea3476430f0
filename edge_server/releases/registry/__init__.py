"""The registry of the models that runs have produced: versions in SQLite, files in folders."""
