"""Every training run: settings, checkpoints, metrics, its folder."""
