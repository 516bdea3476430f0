"""The running gateway of a site."""
