"""Lines of a log, for people or for programs, each with what it is about."""
