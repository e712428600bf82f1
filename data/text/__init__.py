"""Sources of raw text."""
