"""What a client answers, wherever it runs."""
