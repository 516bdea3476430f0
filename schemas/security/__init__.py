"""Signed manifests, enrolment codes, and the terms of secure aggregation."""
