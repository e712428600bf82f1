"""Examples of tasks to the rows that models read."""
