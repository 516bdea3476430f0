"""Virtual devices in virtual time: the same machines as over the broker, joined in memory."""
