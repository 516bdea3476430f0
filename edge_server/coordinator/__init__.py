"""The running server: it plans rounds, publishes tasks, checks updates and closes rounds."""
