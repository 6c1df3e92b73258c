"""Sweeps: grids of trainings as declarative files, computed into stores."""
