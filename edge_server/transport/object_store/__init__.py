"""Large blobs past the broker: a store, the addresses in it that devices may use, and a store of our own."""
