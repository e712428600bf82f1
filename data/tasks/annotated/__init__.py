"""Corpora whose words are annotated: with tags, slots, roles, coreference."""
