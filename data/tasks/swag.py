"""SWAG (Zellers et al. 2018): how a caption continues."""

from etils import epath

from data.tasks import examples, files

_TEXTS = ('sent1', 'sent2', 'ending0', 'ending1', 'ending2', 'ending3')


def _rows(file: epath.Path, split: str) -> examples.Found:
  """Yields the captions, numbered by their rows like the first column."""
  labelled = examples.needs_labels(split)
  records = files.read_csv(file, (*_TEXTS, 'label') if labelled else _TEXTS)
  for number, (where, record) in enumerate(records):
    label = record.get('label')
    if label is not None and label not in tuple('0123'):
      raise ValueError(
        f'{where}: found the label {label!r}, expected 0, 1, 2 or 3'
      )
    context, question, *endings = (record[title] for title in _TEXTS)
    yield (
      where,
      examples.ChoiceExample(
        str(number),
        context,
        question,
        tuple(endings),
        label=None if label is None else int(label),
      ),
    )


SWAG = examples.ChoiceTask(
  rows=_rows,
  name='swag',
  title='SWAG',
  kind='choice',
  files={'train': ('train.csv',), 'dev': ('val.csv',), 'test': ('test.csv',)},
  folders=('SWAG', 'swag', 'swagaf/data'),
  num_choices=4,
  submission='swag',
  sizes={'train': 73546, 'dev': 20006, 'test': 20005},
  url='https://github.com/rowanz/swagaf',
  # Devlin et al. 2018, section 4.4.
  recipe={
    'bert': {'optim.learning_rate': 2e-5, 'train.global_batch': 16},
  },
)

TASKS = (SWAG,)
