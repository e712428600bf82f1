"""What vectors of words and sentences mean: senses, similarity, positions."""
