"""What the server computes from reports; it never sees rows."""
