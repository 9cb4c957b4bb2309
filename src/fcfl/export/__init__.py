"""Trained models as files for other programs: ONNX, skops, a table of coefficients."""
