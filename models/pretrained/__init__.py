"""Published weights to our parameters and back: a rename table each."""
