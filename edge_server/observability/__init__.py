"""What people and programs see of a run: views, dashboard, report, terminal, metrics, trackers."""
