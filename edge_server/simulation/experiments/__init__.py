"""Experiments: recipes compared on the same data, and the papers' tables and figures as such comparisons."""
