"""Processes of tests that start quickly: forked from one process that has imported torch and the packages."""

from tests.forked.command import ForkedCommand, start_forked
from tests.forked.connection import forked_executable, forked_python

__all__ = ["ForkedCommand", "forked_executable", "forked_python", "start_forked"]
