"""The token store."""
