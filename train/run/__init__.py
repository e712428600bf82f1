"""The parts of every training run: loop, settings, checkpoints, metrics."""
