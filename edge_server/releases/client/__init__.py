"""Releases of the client: made of wheels, signed, stored, offered to devices."""
