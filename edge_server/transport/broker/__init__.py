"""A small MQTT broker in pure Python, and the launcher that prefers Mosquitto where it is installed.

One host, loopback only, no TLS, no users, and nothing on disk: sessions, queues and retained messages end
with the process.
"""
