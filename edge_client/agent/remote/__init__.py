"""Answers an operator's requests for diagnostics: doctor, recent log, profile, last crash."""
