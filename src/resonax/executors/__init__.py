"""Executors: what runs tasks side by side."""
