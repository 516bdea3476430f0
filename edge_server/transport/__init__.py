"""The server's side of the network: an embedded broker, object stores, receiver processes."""
