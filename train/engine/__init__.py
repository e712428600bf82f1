"""One training or evaluation step, as functions of arrays."""
