"""The version that is installed: a module of its own, as few ask for it."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("resonax")
