"""The dashboard: a run as a page that any browser shows, live or from its folder."""
