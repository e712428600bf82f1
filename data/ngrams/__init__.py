"""Language models that count n-grams: estimated, read, written, queried."""
