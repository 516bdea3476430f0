"""The run folder and its files: journal, records, events, recovery."""
