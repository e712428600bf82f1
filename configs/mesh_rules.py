"""Which logical axes of arrays are split, and over which axes of a mesh.

Axes of parameters, then those of activations.
"""

RULES = (
  ('layers', None),
  ('vocab', 'tensor'),
  ('words', ('fsdp', 'tensor')),  # ELMo's softmax
  ('towers', None),
  ('gates', None),
  ('length', None),
  ('types', None),
  ('classes', None),
  ('embed', 'fsdp'),
  ('embed_out', None),
  ('mlp', 'tensor'),
  ('qkv', None),
  ('heads', 'tensor'),
  ('head', None),
  ('batch', ('data', 'fsdp')),
  ('activation_length', None),
  ('activation_predictions', None),
  ('activation_embed', None),
  ('activation_mlp', 'tensor'),
  ('activation_heads', 'tensor'),
  ('activation_head', None),
  ('activation_qkv', None),
  ('activation_vocab', 'tensor'),
  ('activation_words', ('fsdp', 'tensor')),
  ('activation_rows', 'data'),  # batch of logits with words sharded by fsdp
)
