"""Labelled sets: their files, inputs, scores and submissions."""
