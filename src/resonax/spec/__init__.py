"""Models of what people give: streams, learners, readings, checks and sweeps. No jax is needed."""
