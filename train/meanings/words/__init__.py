"""Vectors of words without sentences, and their scores."""
