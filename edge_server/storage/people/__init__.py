"""people.sqlite: users, sessions, tokens and failed logins; logging in."""
