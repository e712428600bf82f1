"""Jobs: joins models and data."""
