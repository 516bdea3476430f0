"""The contract between server and devices: messages, topics, blobs, sub-model specs, errors."""
