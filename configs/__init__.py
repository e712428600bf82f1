"""Experiments: one config a file, each with `get_config(arg)`."""
