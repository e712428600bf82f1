"""End-to-end coreference resolution on vectors of words."""
