"""Observation of a run: snapshots, dashboard, report, terminal output, metrics, trackers."""
