"""Running jobs: in this process, in several, or by any executor. Nothing here knows physics."""
