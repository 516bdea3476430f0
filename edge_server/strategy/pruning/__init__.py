"""Which channels a device keeps."""
