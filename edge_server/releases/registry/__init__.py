"""The models that runs have ended with: versions in SQLite, their files beside it."""
