"""The report on a run as one page: what ran, how well it went, and how to repeat it."""
