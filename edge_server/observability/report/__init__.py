"""One page that tells a run: what ran, how well it went, and how to repeat it."""
