"""Whether this device trains now: the owner's rules, held against what the board says of itself."""
