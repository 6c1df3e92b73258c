"""Passes: the growth of a difference between two runs along the rows of a recording."""
