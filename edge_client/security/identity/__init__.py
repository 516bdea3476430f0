"""The device's key and certificate: enrolment, checks and renewal."""
