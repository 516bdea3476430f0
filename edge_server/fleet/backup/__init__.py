"""A backup of a service's folder, of authorities and of runs: one file, made while everything runs."""
