"""What stands in the way of a device, told line by line with the remedy: libraries, broker, clock, room."""
