"""Training language models on raw text."""
