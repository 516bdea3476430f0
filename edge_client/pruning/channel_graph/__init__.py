"""Traces channels through a network: a rule per layer and operation, and a ledger of groups."""
