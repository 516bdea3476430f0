"""Who may connect, what is signed, and secure aggregation."""
