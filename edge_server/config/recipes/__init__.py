"""Named algorithms as data: short TOML files, no code."""
