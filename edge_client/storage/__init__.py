"""Files that are always complete: atomic writes, blobs, state."""
