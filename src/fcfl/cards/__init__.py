"""Regulatory and model cards, written from the files of a run or an audit."""
