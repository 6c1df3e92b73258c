"""The problem, and from moments to dynamics: the curvature B, the flow A(t), the map M_k."""

from resonax.dynamics.flow import Flow
from resonax.dynamics.map import Map
from resonax.dynamics.problem import Problem, check_problem
from resonax.dynamics.setting import Setting

__all__ = ["Flow", "Map", "Problem", "Setting", "check_problem"]
