"""Whether the device may train now: its owner's rules applied to the state of the board."""
