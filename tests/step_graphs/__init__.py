"""Step graphs compared with torch: parameters, memory and time of every shipped network."""
