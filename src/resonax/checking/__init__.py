"""Checks of a recording: whether momentum diverges on it, why, and what would help."""
