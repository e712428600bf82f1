"""DistilBERT's weights (Sanh et al. 2019): a BERT under other names.

It has no token types, and no pooler: its classifier of texts reads a layer with
a ReLU, which BERT has not, so both are set aside and a task draws its own.
"""

import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from models.pretrained import bert
from models.pretrained.strict import Entry
from models.pretrained.weights import Weights

# Parts of DistilBERT's names -> those of Hugging Face's BERT.
PARTS = (
  (r'^distilbert\.', ''),
  (r'^transformer\.layer\.', 'encoder.layer.'),
  (r'\.attention\.q_lin\.', '.attention.self.query.'),
  (r'\.attention\.k_lin\.', '.attention.self.key.'),
  (r'\.attention\.v_lin\.', '.attention.self.value.'),
  (r'\.attention\.out_lin\.', '.attention.output.dense.'),
  (r'\.sa_layer_norm\.', '.attention.output.LayerNorm.'),
  (r'\.ffn\.lin1\.', '.intermediate.dense.'),
  (r'\.ffn\.lin2\.', '.output.dense.'),
  (r'\.output_layer_norm\.', '.output.LayerNorm.'),
  (r'^vocab_transform\.', 'cls.predictions.transform.dense.'),
  (r'^vocab_layer_norm\.', 'cls.predictions.transform.LayerNorm.'),
  (r'^vocab_projector\.bias', 'cls.predictions.bias'),
  (r'^vocab_projector\.weight', 'cls.predictions.decoder.weight'),
)
KEYS = {  # of its config -> of BERT's
  'vocab_size': 'vocab_size',
  'dim': 'hidden_size',
  'n_layers': 'num_hidden_layers',
  'n_heads': 'num_attention_heads',
  'hidden_dim': 'intermediate_size',
  'max_position_embeddings': 'max_position_embeddings',
  'activation': 'hidden_act',
  'dropout': 'hidden_dropout_prob',
  'attention_dropout': 'attention_probs_dropout_prob',
  'tie_word_embeddings': 'tie_word_embeddings',
  'quantization_config': 'quantization_config',
}
# transformers, configuration_distilbert.py.
DEFAULTS = {'activation': 'gelu', 'dropout': 0.1, 'attention_dropout': 0.1}
CLASSIFIERS = ('pre_classifier.', 'classifier.')
OF_TOKENS = 'DistilBertForTokenClassification'


def from_hugging_face(
  folder: epath.Path, config: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Weights:
  """Opens a DistilBERT of Hugging Face: its config.json and its arrays."""
  of_tokens = config.get('architectures') == [OF_TOKENS]
  renamed, dropped = {}, []
  for name, entry in entries.items():
    plain = name
    for pattern, replacement in PARTS:
      plain = re.sub(pattern, replacement, plain)
    if plain.startswith(CLASSIFIERS) and not of_tokens:
      dropped.append(name)
    else:
      renamed[plain] = entry
  known = DEFAULTS | dict(config)
  as_bert = {
    theirs: known[ours] for ours, theirs in KEYS.items() if ours in known
  }
  if of_tokens:
    as_bert['architectures'] = ['BertForTokenClassification']
  if 'id2label' in config:
    as_bert['id2label'] = config['id2label']
  found = bert.from_hugging_face(folder, as_bert, renamed, num_token_types=0)
  problems = []
  for line in found.problems:  # in the words of the file
    for ours, theirs in KEYS.items():
      line = re.sub(rf'\b{theirs}\b', ours, line)
    problems.append(line)
  return found._replace(
    problems=tuple(problems), set_aside=(*found.set_aside, *dropped)
  )
