"""Language models that ELMo, GPT and BERT are compared with."""
