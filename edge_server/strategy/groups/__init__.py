"""Parameter groups next to the model: what devices receive and send, and how the server combines it."""
