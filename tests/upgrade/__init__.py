"""A fleet between two versions: `make test-upgrade` takes the earlier one from the repository."""
