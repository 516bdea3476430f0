"""The event list of a run, in `events.sqlite`: events of the run and its devices in order of time."""
