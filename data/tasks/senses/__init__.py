"""Sets of words in sentences, by whose senses vectors of words are judged."""
