"""From questions to a trained model."""
