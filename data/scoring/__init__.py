"""Predictions to scores and submissions."""
