"""Parameter groups beside the model: what is sent along with it, and how what comes back is folded in."""
