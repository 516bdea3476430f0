"""MQTT and HTTP: connections, chunked blobs and packet sizes."""
