"""A Flower app that trains on handwritten digits; it knows nothing of edge-federation."""
