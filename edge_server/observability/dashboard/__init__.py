"""The dashboard: a web page of a run, live or from its folder."""
