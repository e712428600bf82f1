"""TPU slices, without the hardware."""
