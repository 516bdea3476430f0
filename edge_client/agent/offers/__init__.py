"""One trial of an offer, of a model or a release of the client."""
