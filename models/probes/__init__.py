"""Small models over the frozen layers of another."""
