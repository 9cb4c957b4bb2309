"""What a data holder answers, wherever it runs."""
