"""The machine and the terminal."""
