"""Processes of tests that start quickly: forked from one process that has imported torch and the packages."""

from tests.forked.command import ForkedCommand, start_forked

__all__ = ["ForkedCommand", "start_forked"]
