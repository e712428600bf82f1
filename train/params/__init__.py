"""Where parameters come from, and where they go."""
