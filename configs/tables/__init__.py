"""Tables of published results: one a file, each with `get_table()`."""
