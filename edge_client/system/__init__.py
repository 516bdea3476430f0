"""The machine that a process runs on: hardware, memory, logging."""
