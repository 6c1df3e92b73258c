"""The paper: its figures and its claims, each with its judge."""
