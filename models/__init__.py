"""Linen modules and pure functions on arrays."""
