"""What every training run has: settings, checkpoints, metrics, its folder."""
