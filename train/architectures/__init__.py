"""The families of models (BERT, GPT, ELMo, ...), one file each."""
