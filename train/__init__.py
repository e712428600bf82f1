"""Training, fine-tuning and every command: joins models and data."""
