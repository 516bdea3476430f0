"""Large blobs past the broker: fetched from a store and put there over HTTP, with chunks as the way back."""
