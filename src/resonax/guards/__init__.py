"""Guards: the core of watching a training run, without any framework."""
