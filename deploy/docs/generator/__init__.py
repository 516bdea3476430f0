"""Generates the reference pages from the code: `python -m deploy.docs.generator`, or `make reference`."""
