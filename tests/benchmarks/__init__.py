"""Benchmarks: times as ratios of repeated pairs, with median and spread; memory as a peak."""
