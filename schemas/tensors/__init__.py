"""Arrays, safetensors files, and blobs cut into checked chunks."""
