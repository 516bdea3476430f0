"""The same set-up in Flower's simulation engine. All modules except `engine` run in Flower's environment."""
