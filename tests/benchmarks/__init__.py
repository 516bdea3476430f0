"""Benchmarks: times as ratios measured in pairs, repeated, with median and spread; memory as a peak."""
