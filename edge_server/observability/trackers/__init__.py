"""A run's rounds for the tools that people compare runs with."""
