"""Policies: which devices train in a round, and with which pruning ratio."""
