"""Makes smaller and faster variants of an export, measures them on the device, and keeps the best."""
