"""A Flower app that does what the devices of the benchmark do."""
