"""A Flower app with the same work as the benchmark's devices."""
