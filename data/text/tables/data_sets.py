"""Data sets of Hugging Face: folders of `save_to_disk`, of the hub, the hub.

A folder of `save_to_disk` has IPC streams in the order of state.json, and
perhaps indices.arrow, a choice of their rows; with several splits a folder for
each one, named by dataset_dict.json. A folder of the hub has parquet files, by
`configs` in the front matter of its README.md, or by their names.
"""

import dataclasses
import fnmatch
import functools
import json
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from data import storage
from data.by_name import ByName
from data.text import languages, text_files
from data.text.tables import opening
from data.text.tables.table import Table, records

DEFAULT_SPLIT = 'train'
BESIDE = 'file beside the tables'  # why it is dropped
_DICT, _STATE = 'dataset_dict.json', 'state.json'
# Words in the names of files -> the split, as the hub takes them.
_WORDS = {
  **dict.fromkeys(('train', 'training'), 'train'),
  **dict.fromkeys(
    ('validation', 'valid', 'val', 'dev', 'development'), 'validation'
  ),
  **dict.fromkeys(('test', 'testing', 'eval', 'evaluation'), 'test'),
}
_SHARD = re.compile(r'(.+)-\d{5}-of-\d{5}(?:-\w+)?')
_FRONT_MATTER = re.compile(r'\A---\s*\n(.*?)\n---\s*(?:\n|\Z)', re.DOTALL)
_HUB = ByName(
  {
    name: f'data.text.tables.hub_sets:{name}'
    for name in ('open_set', 'is_prepared')
  }
)

# Config -> split -> files.
Layout = dict[str, dict[str, list[epath.Path]]]


@dataclasses.dataclass(frozen=True)
class DataSet:
  """A split of a data set: its tables, and reason -> files not read."""

  tables: Sequence[Table]
  description: str
  dropped: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


def parse(spec: str) -> tuple[str, str, str]:
  """Returns name, config and split of hf:NAME[:CONFIG][:SPLIT].

  Of a single part after the name, `find` learns whether it is a config or a
  split; here it is the split. Raises ValueError for another form.
  """
  name, *parts = languages.named_parts(spec)
  storage.is_remote(name)  # or an error about the address of another place
  if not name or name.startswith('//') or len(parts) > 2:
    raise ValueError(
      f'source {spec!r}: expected hf:NAME[:CONFIG][:SPLIT], of a folder or of a'
      " data set on Hugging Face's hub"
    )
  config, split = ['', '', *parts][-2:]
  return name, config, split


def is_local(spec: str) -> bool:
  """Returns whether hf:NAME... names a folder, and needs no download."""
  return epath.Path(parse(spec)[0]).expanduser().is_dir()


def needs_download(spec: str) -> bool:
  """Returns whether opening a source would download a set."""
  return not (is_local(spec) or _HUB['is_prepared'](spec, *parse(spec)))


def find(spec: str, name: str, config: str, split: str) -> DataSet:
  """Opens a split of a data set, `train` or the only one by default.

  `name` is a folder, or a data set on the hub. `config` and `split` may be
  empty; a `split` that is a config is taken for that. Raises ValueError or
  FileNotFoundError, naming the splits that there are.
  """
  folder = epath.Path(name).expanduser()
  if not folder.is_dir():
    return DataSet(*_HUB['open_set'](spec, name, config, split))
  if (folder / _DICT).exists():
    splits = _read_json(folder / _DICT, 'splits', list)
    chosen, others = _choose_split(spec, splits, split, config)
    tables = list(_saved(folder / chosen))
  elif (folder / _STATE).exists():
    if config or split:
      raise ValueError(
        f'source {spec!r}: {folder} is a single split of save_to_disk, expected'
        f' hf:{name} without the name of a split'
      )
    chosen, others, tables = '', '', list(_saved(folder))
  else:
    return _of_hub(spec, folder, config, split)
  return DataSet(tables, _describe(tables, chosen, others))


def read_records(
  file: epath.Path, columns: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yields (place, record) of a file, a folder or hf:NAME[:CONFIG]:SPLIT.

  See `table.records` on `columns`.
  """
  spec = str(file)
  if spec.startswith(languages.HUGGING_FACE):
    # With both slashes of gs:// again.
    parts = languages.named_parts(spec)
    spec = languages.HUGGING_FACE + ':'.join(parts)
    tables = find(spec, *parse(spec)).tables
  elif file.is_dir():
    tables = find(spec, spec, '', '').tables
  else:
    tables = [opening.open_table(file)]
  return records(tables, columns)


def count(tables: Sequence[Any]) -> str:
  """Returns the number of files, as text."""
  return f'{len(tables)} files' if len(tables) > 1 else '1 file'


def _describe(tables: Sequence[Table], split: str, others: str) -> str:
  return count(tables) + (f' of the split {split!r}{others}' if split else '')


def _choose_split(
  spec: str, splits: Sequence[str], split: str, config: str = ''
) -> tuple[str, str]:
  """Returns the split, and a note of the others."""
  wanted = split or (splits[0] if len(splits) == 1 else DEFAULT_SPLIT)
  if config or wanted not in splits:
    asked = ':'.join(filter(None, (config, wanted)))
    raise ValueError(
      f'source {spec!r}: found no split {asked!r}, expected one of'
      f' {", ".join(splits)}, as in hf:NAME:{splits[0] if splits else "SPLIT"}'
    )
  others = [name for name in splits if name != wanted]
  return wanted, f' (not of {", ".join(others)})' if others else ''


def _read_json(path: epath.Path, field: str, kind: type) -> Any:
  try:
    value = text_files.loads(text_files.read_text(path))
    if isinstance(value[field], kind):
      return value[field]
    problem = f'{field} is {type(value[field]).__name__}'
  except (ValueError, KeyError, TypeError) as error:
    problem = f'{type(error).__name__}: {error}'
  raise ValueError(
    f'{path}: found no {kind.__name__} {field!r} ({problem}), expected that of'
    ' save_to_disk'
  )


# ---- Folders of save_to_disk -----------------------------------------------


def _saved(folder: epath.Path) -> Iterator[Table]:
  """Opens the tables of a folder of a split; of a choice of rows one table."""
  state = folder / _STATE
  if not state.exists():
    raise FileNotFoundError(
      f'{state}: no such file, expected that of a split of save_to_disk'
    )
  paths = [
    folder / _name(state, entry)
    for entry in _read_json(state, '_data_files', list)
  ]
  if not paths:
    raise ValueError(f'{state}: found no file in _data_files, expected some')
  known = json.loads(state.read_text())
  chosen = known.get('_indices_data_files') or known.get('_indices_files') or ()
  indices = [folder / _name(state, entry) for entry in chosen]
  for path in (*paths, *indices):
    if not path.exists():
      raise FileNotFoundError(
        f'{path}: no such file, and {state} names it. Copy the folder whole'
      )
  classes = _saved_classes(folder)
  tables = [opening.open_table(path) for path in paths]
  tables = [
    dataclasses.replace(table, classes=table.classes or classes)
    for table in tables
  ]
  if not indices:
    yield from tables
  else:
    from data.text.tables import arrow_files

    stamps = [text_files.size_and_time(path) for path in indices]
    yield dataclasses.replace(
      tables[0],
      name=str(folder),
      read=functools.partial(
        arrow_files.read_chosen, [*map(str, paths)], [*map(str, indices)]
      ),
      num_bytes=sum(table.num_bytes for table in tables),
      stamp=[[table.stamp for table in tables], stamps],
    )


def _name(state: epath.Path, entry: Any) -> str:
  try:
    return str(entry['filename'])
  except (KeyError, TypeError):
    raise ValueError(
      f'{state}: found {entry!r} among the files, expected their filename'
    ) from None


def _saved_classes(folder: epath.Path) -> Mapping[str, Sequence[str]]:
  """Returns the names of classes from dataset_info.json, of older folders."""
  path = folder / 'dataset_info.json'
  if not path.exists():
    return {}
  from data.text.tables import arrow_files

  try:
    features = text_files.read_json(path).get('features') or {}
    found = {
      name: arrow_files.names_of(each) for name, each in features.items()
    }
  except (ValueError, TypeError, AttributeError) as error:
    raise ValueError(
      f'{path}: found no features ({error}), expected those of save_to_disk'
    ) from None
  return {name: names for name, names in found.items() if names}


# ---- Folders as on the hub --------------------------------------------------


def _of_hub(spec: str, folder: epath.Path, config: str, split: str) -> DataSet:
  paths, _, dangling = text_files.find(str(folder))
  tables = [path for path in paths if text_files.is_table(path)]
  if not tables:
    raise ValueError(
      f'source {spec!r}: {folder} has no {_STATE} of save_to_disk and no'
      ' parquet, arrow, csv or tsv file, expected a data set of Hugging Face'
    )
  readme = folder / 'README.md'
  matter = _front_matter(readme)
  configs = _objects(
    readme, 'configs', matter.get('configs'), 'an object with config_name'
  )
  layout = _declared(readme, configs, paths) or _by_names(folder, tables)
  if not config and split in layout and split not in layout.get('default', ()):
    config, split = split, ''
  default = _default_config(layout, configs)
  if (config or default) not in layout:
    raise ValueError(
      f'source {spec!r}: found no config {config or default!r}, expected one of'
      f' {", ".join(layout)}, as in hf:{folder}:{next(iter(layout))}'
    )
  config = config or default
  chosen, others = _choose_split(spec, list(layout[config]), split)
  files = layout[config][chosen]
  if not files:
    raise FileNotFoundError(
      f'source {spec!r}: no file of the split {chosen!r} that {readme} declares'
    )
  wrong = [path for path in files if not text_files.is_table(path)]
  if wrong:
    raise ValueError(
      f'source {spec!r}: found {wrong[0]} of the split {chosen!r}, expected'
      f' files of {", ".join(text_files.TABLES)}'
    )
  classes = _declared_classes(readme, matter, config)
  opened = [opening.open_table(path) for path in files]
  opened = [
    dataclasses.replace(table, classes=table.classes or classes)
    for table in opened
  ]
  name = chosen if len(layout) == 1 else f'{config}:{chosen}'
  beside = [str(path) for path in paths if not text_files.is_table(path)]
  return DataSet(
    opened,
    _describe(opened, name, others),
    {BESIDE: beside, 'link to nothing': dangling},
  )


def _front_matter(readme: epath.Path) -> Mapping[str, Any]:
  """Returns the values at the head of README.md; empty if there are none."""
  if not readme.exists():
    return {}
  found = _FRONT_MATTER.match(text_files.read_text(readme))
  if not found:
    return {}
  import yaml  # comes with huggingface_hub

  try:
    values = yaml.safe_load(found[1])
  except (yaml.YAMLError, ValueError, RecursionError) as error:
    raise ValueError(
      f'{readme}: found front matter that is not YAML:'
      f' {" ".join(str(error).split())}'
    ) from None
  return values if isinstance(values, dict) else {}


def _wrong(
  readme: epath.Path, key: str, found: Any, expected: str
) -> ValueError:
  return ValueError(
    f'{readme}, {key}: found {found!r:.60}, expected {expected}'
  )


def _objects(
  readme: epath.Path, key: str, value: Any, expected: str
) -> list[dict[str, Any]]:
  """Returns a list of objects in front matter, none of null."""
  value = [] if value is None else value
  if not isinstance(value, list):
    raise _wrong(readme, key, value, f'a list, each {expected}')
  for number, each in enumerate(value):
    if not isinstance(each, dict):
      raise _wrong(readme, f'{key}[{number}]', each, expected)
  return value


def _declared(
  readme: epath.Path,
  configs: Sequence[Mapping[str, Any]],
  paths: Sequence[epath.Path],
) -> Layout:
  """Returns the files of each split by the `configs` of README.md."""
  layout: Layout = {}
  for number, entry in enumerate(configs):
    name, key = str(entry.get('config_name') or 'default'), f'configs[{number}]'
    data_dir, files = entry.get('data_dir'), entry.get('data_files')
    if data_dir is None and files is None:
      continue
    folder = readme.parent / str(data_dir or '')
    inside = [path for path in paths if path.is_relative_to(folder)]
    tables = [path for path in inside if text_files.is_table(path)]
    if not tables:
      raise _wrong(readme, f'{key}.data_dir', data_dir, 'a folder of tables')
    if files is None:
      layout |= _by_names(folder, tables, name)
      continue
    splits = layout.setdefault(name, {})
    for split, patterns in _parts(readme, f'{key}.data_files', files):
      found = splits.setdefault(split, [])
      found += dict.fromkeys(
        path
        for pattern in map(pathlib.PurePosixPath, patterns)
        for path in inside
        if _fits(path.relative_to(folder).parts, pattern.parts)
      )
  return layout


def _parts(
  readme: epath.Path, key: str, files: Any
) -> Iterator[tuple[str, list[str]]]:
  """Yields the split and the patterns of each part of `data_files`."""
  expected = 'a pattern, or an object with split and path'
  if files == []:
    raise _wrong(readme, key, files, expected)
  if _is_patterns(files):
    files = [{'path': files}]
  for part in _objects(readme, key, files, expected):
    patterns = part.get('path')
    if not _is_patterns(patterns):
      raise _wrong(readme, f'{key}.path', patterns, 'a pattern or several')
    patterns = [patterns] if isinstance(patterns, str) else patterns
    yield str(part.get('split', DEFAULT_SPLIT)), patterns


def _is_patterns(value: Any) -> bool:
  values = value if isinstance(value, list) else [value]
  return bool(values) and all(isinstance(each, str) for each in values)


def _fits(names: Sequence[str], patterns: Sequence[str]) -> bool:
  """Returns whether a path fits a pattern, of which ** is any folders."""
  if not patterns:
    return not names
  first, *rest = patterns
  if first == '**':
    rest = rest or ['*']
    return any(_fits(names[at:], rest) for at in range(len(names)))
  fits = bool(names) and fnmatch.fnmatchcase(names[0], first)
  return fits and _fits(names[1:], rest)


def _default_config(
  layout: Layout, configs: Sequence[Mapping[str, Any]]
) -> str:
  if len(layout) == 1:
    return next(iter(layout))
  for entry in configs:
    if entry.get('default'):
      return str(entry.get('config_name') or 'default')
  return 'default'


def _by_names(
  folder: epath.Path, paths: Sequence[epath.Path], config: str = ''
) -> Layout:
  """Returns the files of each split by their names and folders.

  Without a config, each folder other than data/ is one if its files are
  numbered.
  """
  layout: Layout = {}
  for path in paths:
    relative = path.relative_to(folder)
    parents = [part for part in relative.parts[:-1] if part != 'data']
    # Without the ending, and that of a compression.
    stem = path.name[: path.name.lower().rindex(text_files.ending(path))]
    shard = _SHARD.fullmatch(stem)
    name = config or (parents[0] if shard and parents else 'default')
    split = _split_of(shard[1] if shard else stem, parents, bool(shard))
    layout.setdefault(name, {}).setdefault(split, []).append(path)
  return layout


def _split_of(stem: str, parents: Sequence[str], is_shard: bool) -> str:
  for name in (stem, *reversed(parents)):
    for word in re.split('[^a-z]+', name.lower()):
      if word in _WORDS:
        return _WORDS[word]
  return stem if is_shard else DEFAULT_SPLIT


def _declared_classes(
  readme: epath.Path, matter: Mapping[str, Any], config: str
) -> dict[str, list[str]]:
  """Returns column -> names of classes by `dataset_info` of README.md."""
  infos, key = matter.get('dataset_info'), 'dataset_info'
  infos = [infos] if isinstance(infos, dict) else infos
  found = {}
  for info in _objects(readme, key, infos, 'an object with features'):
    if str(info.get('config_name', config)) != config:
      continue
    of_features = f'{key}.features'
    features = _objects(
      readme, of_features, info.get('features'), 'an object with name and dtype'
    )
    for feature in features:
      kind, column = feature.get('dtype'), feature.get('name')
      names = kind.get('class_label') if isinstance(kind, dict) else None
      names = names.get('names') if isinstance(names, dict) else None
      if names:
        where = f'{of_features}, the classes of {column!r}'
        found[str(column)] = _class_names(readme, where, names)
  return found


def _class_names(readme: epath.Path, key: str, names: Any) -> list[str]:
  values = names
  if isinstance(names, dict):
    by_number = {str(number): name for number, name in names.items()}
    numbers = [str(number) for number in range(len(names))]
    if {*by_number} != {*numbers}:
      raise _wrong(readme, key, names, f'the numbers 0 to {len(names) - 1}')
    values = [by_number[number] for number in numbers]
  if not isinstance(values, list) or not all(
    isinstance(name, str | int) and not isinstance(name, bool)
    for name in values
  ):
    raise _wrong(readme, key, names, 'names, in quotes where YAML has a value')
  return [str(name) for name in values]
