"""Log lines for people or for programs, each with its context."""
