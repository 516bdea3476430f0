"""Sites: who their gateways are, and the sums that they make."""
