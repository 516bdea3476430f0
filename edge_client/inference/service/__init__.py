"""`edge-client serve`: the current model behind HTTP and MQTT, exchanged without dropping a request."""
