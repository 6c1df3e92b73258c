"""Executors: jobs one after the other, or side by side in processes. They know no physics."""
