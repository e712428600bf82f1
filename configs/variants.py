"""Sizes of each architecture, with their source."""

# The four-way "inner" size is 4 x embed_dim throughout (Devlin et al. 2018,
# section 3). tiny to medium: google-research/bert's README, "Smaller BERT
# models" (Turc et al. 2019). The l*-h*-a* rows: Devlin et al. 2018, Table 6.
BERT = {
  'bert-tiny': dict(num_layers=2, embed_dim=128, num_heads=2),
  'bert-mini': dict(num_layers=4, embed_dim=256, num_heads=4),
  'bert-small': dict(num_layers=4, embed_dim=512, num_heads=8),
  'bert-medium': dict(num_layers=8, embed_dim=512, num_heads=8),
  'bert-base': dict(num_layers=12, embed_dim=768, num_heads=12),
  'bert-large': dict(num_layers=24, embed_dim=1024, num_heads=16),
  'bert-l3-h768-a12': dict(num_layers=3, embed_dim=768, num_heads=12),
  'bert-l6-h768-a3': dict(num_layers=6, embed_dim=768, num_heads=3),
  'bert-l6-h768-a12': dict(num_layers=6, embed_dim=768, num_heads=12),
  'bert-l12-h1024-a16': dict(num_layers=12, embed_dim=1024, num_heads=16),
}
for _sizes in BERT.values():
  _sizes['mlp_dim'] = 4 * _sizes['embed_dim']
