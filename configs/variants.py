"""Sizes of each architecture, with their source."""

# base and large: Devlin et al. 2018, section 3. tiny to medium:
# google-research/bert's README, "Smaller BERT models" (Turc et al. 2019). The
# l*-h*-a* rows: Devlin et al. 2018, Table 6.
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

# Radford et al. 2018, section 4.1. gpt-tiny and gpt-mini have the widths of the
# BERTs of these names.
GPT = {
  'gpt-tiny': dict(num_layers=2, embed_dim=128, num_heads=2),
  'gpt-mini': dict(num_layers=4, embed_dim=256, num_heads=4),
  'gpt': dict(num_layers=12, embed_dim=768, num_heads=12),
}
# Radford et al. 2019, Table 2; heads from the hparams.json that openai/gpt-2
# hands out with the weights.
GPT2 = {
  'gpt2': dict(num_layers=12, embed_dim=768, num_heads=12),
  'gpt2-medium': dict(num_layers=24, embed_dim=1024, num_heads=16),
  'gpt2-large': dict(num_layers=36, embed_dim=1280, num_heads=20),
  'gpt2-xl': dict(num_layers=48, embed_dim=1600, num_heads=25),
}
# The inner size is 4 x embed_dim throughout: Devlin et al. 2018, section 3;
# openai/finetune-transformer-lm train.py; openai/gpt-2 model.py.
for _sizes in (*BERT.values(), *GPT.values(), *GPT2.values()):
  _sizes['mlp_dim'] = 4 * _sizes['embed_dim']

# lstm_dim and projection_dim stand in the names of the options files published
# with the weights: 2x1024_128_2048cnn_1xhighway, 2x2048_256_2048cnn_1xhighway
# and 2x4096_512_2048cnn_2xhighway (the original, Peters et al. 2018, section
# 3.4). elmo-tiny is ours, for trials.
ELMO = {
  'elmo-tiny': dict(lstm_dim=256, projection_dim=64, num_highway=1),
  'elmo-small': dict(lstm_dim=1024, projection_dim=128, num_highway=1),
  'elmo-medium': dict(lstm_dim=2048, projection_dim=256, num_highway=1),
  'elmo': dict(lstm_dim=4096, projection_dim=512, num_highway=2),
}
for _sizes in ELMO.values():
  _sizes.update(num_layers=2, char_embed_dim=16)
  _sizes['filters'] = (  # (width, count), 2,048 in all
    (1, 32),
    (2, 32),
    (3, 64),
    (4, 128),
    (5, 256),
    (6, 512),
    (7, 1024),
  )
ELMO['elmo-tiny']['filters'] = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 128))
