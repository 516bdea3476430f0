"""Benchmarks: each figure is a ratio measured in one run, paired and repeated, with median and spread."""
