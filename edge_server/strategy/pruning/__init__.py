"""Pruners: which channels a device keeps."""
