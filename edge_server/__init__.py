"""Rounds, selection, ratios, aggregation, fleet: everything that the server decides."""

import edge_client as edge_client
