"""Perplexities of pre-trained models on their held-out text.

Figures come from workdirs; the columns do not compare with each other.

  python -m train.tables --table lm/perplexity --weights GPT=runs/gpt
"""

from configs.tables import base
from configs.tables.base import Column, Part, Row


def _column(name: str, family: str, *metrics: str) -> Column:
  return Column(
    name,
    (Part(base.PRETRAINING, tuple(f'eval/{metric}' for metric in metrics)),),
    percent=False,
    family=family,
  )


TABLE = base.Table(
  id='lm/perplexity',
  title='Perplexity of the pre-trained models on their own held-out data',
  source=(
    'Peters et al. 2018, section 3.4 (mean of both directions); Radford et'
    ' al. 2018, section 4.1; Devlin et al. 2018, Table 6'
  ),
  columns=(
    _column(
      'one_billion_word/ppl',
      'elmo',
      'forward_perplexity',
      'backward_perplexity',
    ),
    _column('books/token_ppl', 'gpt', 'perplexity'),
    _column('mlm/ppl', 'bert', 'mlm_perplexity'),
  ),
  seeds=1,
  notes=(
    "Ours is of the run's own held-out text: it compares with the published"
    ' figure only where text, vocabulary and budget are those of the paper.',
  ),
  rows=(
    Row(
      'ELMo biLM',
      (39.7, '', ''),
      family='elmo',
      needs='the workdir of --config elmo_1b',
    ),
    Row(
      'GPT', ('', 18.4, ''), family='gpt', needs='the workdir of --config gpt'
    ),
    Row(
      'BERT-Base',
      ('', '', 3.99),
      family='bert',
      needs='the workdir of --config bert_base',
    ),
  ),
)
