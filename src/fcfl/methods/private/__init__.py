"""A method for clients that add noise to all they say: few rounds, no line search."""

from fcfl.methods.private.private import Private

__all__ = ["Private"]
