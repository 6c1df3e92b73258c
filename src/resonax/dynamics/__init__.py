"""From moments to dynamics: the curvature B, the flow A(t) and the map M_k."""

from resonax.dynamics.flow import Flow
from resonax.dynamics.map import Map
from resonax.dynamics.setting import Setting

__all__ = ["Flow", "Map", "Setting"]
