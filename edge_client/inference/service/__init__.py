"""`edge-client serve`: the current model over HTTP and MQTT, replaced without dropping a request."""
