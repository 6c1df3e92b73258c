"""Checking: will momentum blow up on these data, why, and what would help?"""
