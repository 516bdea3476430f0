"""Objectives around a step graph, in numpy."""
