"""What word2vec.c has beside vectors: trees, phrases, files and classes."""
