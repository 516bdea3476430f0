"""Certificates: the private authority, enrolment, revocation, and the broker's configuration."""
