"""Attention, its kernel, and the blocks of transformers."""
