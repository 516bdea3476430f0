"""Channel pruning: attention scores, channel selection, and physically smaller networks."""
