"""How long a guard by replay has nothing to do: steps that are then counted together."""

from __future__ import annotations

from resonax.guards.replay import ReplayConfig, ReplayState, marks

__all__ = ["calm_steps"]


def calm_steps(state: ReplayState, config: ReplayConfig) -> int:
    """Return how many steps can be made after `with_snapshot` before the run is looked at.

    None of them completes a spacing, is marked, has something due or trains on mixed rows.

    Examples
    --------
    >>> from resonax.guards.learner import Candidate
    >>> calm_steps(ReplayState(step=40, next_test=100), ReplayConfig((Candidate(0.9),)))
    11
    """
    if config.candidates[state.place].is_mixed:
        return 0
    step, spacing = state.step, config.spacing
    looks = [one for one in marks(state.next_test, spacing) if one > step]
    looks += [(step // spacing + 1) * spacing, max(state.next_test, step + 1)]
    if state.place > 0 and config.policy != "fastest":
        looks.append(max(state.hold, step + 1))
    return min(looks) - step - 1
