"""People and programs that may use the service: users, roles, passwords, sessions, tokens, OpenID Connect."""
