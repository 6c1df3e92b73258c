"""Experiments: the paper as declarative specifications."""
