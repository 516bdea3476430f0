"""The federation file: sections, recipes, overrides and checks."""
