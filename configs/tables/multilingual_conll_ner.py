r"""Wu and Dredze 2019: entities of other languages, trained on English.

Training is on CoNLL-2003's English, among the settings of the paper's grid
those that are best on English dev, by the mean over the seeds; the test sets of
CoNLL-2003's German and of CoNLL-2002 are scored. Without the files of all three
languages, --config.task.test_languages='("es",)' names those that are there.

  python -m train.tables --table multilingual/conll_ner --data sets \
    --weights 'mBERT cased=google-bert/bert-base-multilingual-cased'
"""

from configs.tables import base
from configs.tables.base import Column, Part, Row

LANGUAGES = ('de', 'es', 'nl')

TABLE = base.Table(
  id='multilingual/conll_ner',
  title='Entities of other languages, trained on English CoNLL-2003 (test F1)',
  source='Wu and Dredze 2019, as listed by paperswithcode.com',
  columns=tuple(
    Column(
      f'conll_{language}/f1',
      (
        Part(
          'conll2003',
          (f'test@{language}/f1',),
          overrides={'task.test_languages': LANGUAGES},
        ),
      ),
    )
    for language in LANGUAGES
  ),
  # Rates, batches and epochs of the paper's grid are those of BERT's appendix.
  grids={'bert': base.PAPER_GRID},
  tells=(*base.PAPER_GRID, 'task.max_length', 'train.select'),
  notes=(
    "Rate, batch and epochs are the best on English dev of the paper's grid, by"
    ' the mean over the seeds.',
    'Ours trains all layers; the paper also tries the lowest ones frozen.',
  ),
  rows=(Row('mBERT cased', (69.56, 74.96, 77.57), **base.MULTI_CASED),),
)
