"""Codecs that make updates and models small, and the encoded form."""
