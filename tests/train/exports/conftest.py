import pydoc_data.topics

import pytest
import small_elmo
import small_published

from data.vocabulary import tokenization
from models.pretrained import elmo


@pytest.fixture(scope='session')
def published(torch, small_bert, tmp_path_factory):
  """Name -> a folder of small published weights, random ones."""
  torch.manual_seed(0)
  folder = tmp_path_factory.mktemp('families')
  found = {'bert': small_bert}
  for name, kind in (('gpt', 'bpe'), ('gpt2', 'bytebpe')):
    tokenizer = tokenization.train(
      list(pydoc_data.topics.topics.values())[:20],
      tokenization.parse_training(f'train:{kind}:400'),
    )
    small_published.write_gpt(folder / name, tokenizer)
    found[name] = folder / name
  for kind in ('BertForPreTraining', 'BertForMaskedLM'):
    found[kind] = folder / kind
    small_published.write_bert(
      folder / kind, tokenization.load(small_bert), kind
    )
  elmo.write_folder(folder / 'elmo', *small_elmo.small_elmo())
  return found | {'elmo': folder / 'elmo'}
