"""The processes of jobs, and what their actions run."""
