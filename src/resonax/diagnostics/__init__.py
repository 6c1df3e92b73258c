"""Diagnostics: the check of a data set before training, and probes of real learners.

Import from the modules: a data file is then read, and refused, before jax is loaded.
"""
