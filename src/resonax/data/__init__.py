"""Data that come with resonax; README.md says from where, and under which licence."""
