"""word2vec in batches and in the order of the original, and GloVe."""
