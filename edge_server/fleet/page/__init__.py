"""The page and the API of the fleet service: devices, jobs, rollouts, alerts, audit log, users."""
