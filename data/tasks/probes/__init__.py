"""Sets of edge probing: sentences whose spans of words have labels."""
