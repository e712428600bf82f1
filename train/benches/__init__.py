"""How fast we are."""
