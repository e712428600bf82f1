"""Makes batches for pre-training from token stores."""
