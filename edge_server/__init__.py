"""Rounds, selection, ratios, aggregation, fleet: everything that the server decides."""
