"""The families of models, one file each."""
