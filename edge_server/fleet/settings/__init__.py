"""service.toml: the settings of the fleet service."""
