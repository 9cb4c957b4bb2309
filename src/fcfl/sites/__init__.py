"""Sites that keep their rows: messages, transports, checks of requests, and the journal."""
