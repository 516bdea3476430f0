"""The same set-up in Flower's simulation engine. Its modules but for `engine` run in Flower's environment."""
