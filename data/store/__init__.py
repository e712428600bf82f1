"""The token store: a text as token ids on disk, which pre-training reads."""
