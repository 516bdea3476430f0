"""What people may change in a fleet: one table for page, API, commands, roles and audit log."""
