"""SWAG (Zellers et al. 2018): how a caption goes on."""

from collections.abc import Iterator

from etils import epath

from data.tasks import checks, examples, files

_TEXTS = ('sent1', 'sent2', 'ending0', 'ending1', 'ending2', 'ending3')


def _rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.ChoiceExample]]:
  """The captions; rows are numbered from 0, as their first column is."""
  has_label = 'label' in files.csv_header_of(file) or checks.is_labelled(split)
  columns = (*_TEXTS, *(['label'] if has_label else []))
  for number, (line, fields) in enumerate(files.read_csv(file, columns)):
    where = f'{file}, line {line:,}'
    label = None
    if has_label:
      if fields[-1] not in tuple('0123'):
        raise ValueError(
          f'{where}: found the label {fields[-1]!r}, expected 0, 1, 2 or 3'
        )
      label = int(fields[-1])
    yield (
      where,
      examples.ChoiceExample(
        id=str(number),
        context=fields[0],
        question=fields[1],
        choices=tuple(fields[2:6]),
        label=label,
      ),
    )


SWAG = checks.declare(
  _rows,
  name='swag',
  title='SWAG',
  kind='choice',
  files={
    'train': ('train.csv',),
    'dev': ('val.csv',),
    'test': ('test.csv',),
  },
  folders=('SWAG', 'swag', 'swagaf/data'),
  num_choices=4,
  submission='swag',
  sizes={'train': 73546, 'dev': 20006, 'test': 20005},
  url='https://github.com/rowanz/swagaf',
)

TASKS = (SWAG,)
