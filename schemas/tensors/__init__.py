"""Lazy arrays, safetensors files, and blobs in checked chunks."""
