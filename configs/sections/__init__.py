"""The keys of models other than BERT, and of fine-tunings."""
