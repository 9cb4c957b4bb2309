"""Sites that keep their rows: messages, transports, what a site answers, and its journal."""
