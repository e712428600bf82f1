"""From text and labelled sets to batches of arrays; knows no models."""
