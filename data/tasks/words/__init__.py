"""Sets of words without sentences, by which vectors of words are judged."""
