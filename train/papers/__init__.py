"""The published tables, filled."""
