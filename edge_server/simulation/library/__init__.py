"""What `import edge_server` offers beside the configuration: simulations, runs and comparisons."""
