"""Token stores to batches of pre-training."""
