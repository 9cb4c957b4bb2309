"""Sums over clients that nobody can take apart: masks that cancel, shares for who drops out."""
