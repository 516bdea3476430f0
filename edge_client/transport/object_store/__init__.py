"""Transfers of large blobs from and to an object store over HTTP; MQTT chunks are the fallback."""
