"""This device's identity: its key and certificate, how it gets them and how it replaces them in time."""
