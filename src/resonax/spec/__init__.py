"""Models of all input: streams, learners, files, checks and sweeps. No jax is needed."""
