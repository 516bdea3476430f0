"""The queue of jobs on disk."""
