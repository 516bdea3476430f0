"""The queue of jobs as a pure state machine: schedules, who may start, what each end means."""
