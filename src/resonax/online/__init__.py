"""A guard by replay for learners of any library that can be copied."""
