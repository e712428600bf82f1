r"""google-research/bert, multilingual.md: XNLI in six languages.

The release's recipe: batch 32, rate 5e-5, 2 epochs, 128 tokens. Zero shot is
training on English MultiNLI alone; the test sets of all six are scored. The
release's zero-shot row is the uncased model's; the cased one's is Hugging
Face's computation, beside DistilmBERT's.

  python -m train.tables --table multilingual/xnli --data sets --weights \
    'BERT zero shot, cased=google-bert/bert-base-multilingual-cased'
"""

from configs.tables import base
from configs.tables.base import Column, Part, Row

OTHERS = ('zh', 'es', 'de', 'ar', 'ur')


def _column(language: str, split: str) -> Column:
  part = Part(
    'xnli',
    (f'{split}/accuracy',),
    overrides={'task.test_languages': OTHERS},
  )
  return Column(f'xnli_{language}/accuracy', (part,))


TABLE = base.Table(
  id='multilingual/xnli',
  title='XNLI by language (test accuracy)',
  source=(
    'google-research/bert, multilingual.md; DistilmBERT and zero shot, cased:'
    ' Hugging Face, distillation/README.md'
  ),
  columns=(
    _column('en', 'test'),
    *(_column(language, f'test@{language}') for language in OTHERS),
  ),
  seeds=1,
  notes=(
    'The sources name no number of runs; ours is one, without --seeds.',
    "The model that is scored is the last step's, as in the release.",
    "The classifier of DistilmBERT has BERT's pooler here; that of Hugging Face"
    ' has a layer with a ReLU.',
  ),
  rows=(
    Row('XNLI baseline, translate train', (73.7, 67.0, 68.8, 66.5, 65.8, 56.6)),
    Row('XNLI baseline, translate test', (73.7, 68.3, 70.7, 68.7, 66.8, 59.3)),
    Row('BERT translate train, cased', (81.9, 76.6, 77.8, 75.9, 70.7, 61.6)),
    Row('BERT translate train, uncased', (81.4, 74.2, 77.3, 75.2, 70.5, 61.7)),
    Row('BERT translate test, uncased', (81.4, 70.1, 74.9, 74.4, 70.4, 62.1)),
    Row(
      'BERT zero shot, uncased',
      (81.4, 63.8, 74.3, 70.5, 62.1, 58.3),
      **base.MULTILINGUAL,
    ),
    Row(
      'BERT zero shot, cased',
      (82.1, 69.1, 74.6, 72.3, 66.4, 58.5),
      **base.MULTI_CASED,
    ),
    Row(
      'DistilmBERT zero shot, cased',
      (78.2, 64.0, 69.1, 66.3, 59.1, 54.7),
      family='bert',
      needs='DistilmBERT, such as'
      ' distilbert/distilbert-base-multilingual-cased',
    ),
  ),
)
