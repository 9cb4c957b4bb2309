"""What is trained: linear models and torch modules."""
