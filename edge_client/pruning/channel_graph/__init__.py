"""How channels are followed through a network: one rule per layer and operation, one book of groups."""
