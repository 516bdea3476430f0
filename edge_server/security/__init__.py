"""Device certificates, signed manifests, and secure aggregation."""
