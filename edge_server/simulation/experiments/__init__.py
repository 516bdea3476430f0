"""Experiments: recipes compared on the same data, among them the papers' tables and figures."""
