"""Probing: other people's learners, replayed on rows and measured."""
