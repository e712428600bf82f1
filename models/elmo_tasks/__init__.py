"""The task models of ELMo's papers, on vectors of words."""
