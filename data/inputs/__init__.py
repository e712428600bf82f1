"""Turns examples of tasks into the rows that models read."""
