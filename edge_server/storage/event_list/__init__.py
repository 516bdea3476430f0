"""The event list of a run: what happened to it and to its devices, in order of time, in `events.sqlite`."""
