"""The README.md of an exported folder: the model card that hubs show."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from models import layers
from models.pretrained import strict
from train.exports.exported import Export, reads_types
from train.host.console import duration

FILE = 'README.md'
UNKNOWN = 'unknown'  # the hub's name of a licence that nobody told
# Kind of a task -> the hub's name of what a model does.
PIPELINES = {
  'classification': 'text-classification',
  'regression': 'text-classification',
  'choice': 'multiple-choice',
  'tagging': 'token-classification',
  'span': 'question-answering',
}
NAMES = {'bert': 'BERT', 'gpt': 'GPT', 'gpt2': 'GPT-2', 'elmo': 'ELMo'}
# How a folder is opened, by the form.
_CODE = {
  'transformers': """\
import transformers

tokenizer = transformers.AutoTokenizer.from_pretrained('{name}')
model = transformers.{architecture}.from_pretrained('{name}')
""",
  'sentence-transformers': """\
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer('{name}').encode(['a text', 'another'])
""",
  'onnx': """\
import onnxruntime
import tokenizers

tokenizer = tokenizers.Tokenizer.from_file('{name}/tokenizer.json')
session = onnxruntime.InferenceSession('{name}/model.onnx')
ids = [tokenizer.encode('a text').ids]
inputs = {{'input_ids': ids, 'attention_mask': [[1] * len(ids[0])]{types}}}
outputs = session.run(None, inputs)
""",
}


def text(export: Export, name: str, architecture: str = '') -> str:
  """Returns the card of a folder's model: data, steps, scores, licence.

  `architecture` is Hugging Face's class, where there is one.
  """
  return '\n'.join(_lines(export, name, architecture)).rstrip() + '\n'


def _lines(export: Export, name: str, architecture: str) -> Iterator[str]:
  found, licence = export.weights, _licence(export)
  yield from ('---', f'license: {licence}')
  form = export.request.form
  library = {'onnx': 'transformers'}.get(form, form)
  if not found.reads_words:
    yield f'library_name: {library}'
    yield f'pipeline_tag: {_pipeline(export)}'
  yield from ('tags:', '- sesame', f'- {found.name}')
  if form == 'onnx':
    yield '- onnx'
  yield from ('---', '', f'# {name}', '')
  yield from (_description(export), '')
  yield from _use(export, name, architecture)
  yield from ('', '## Training', '')
  yield from _training(export)
  scores = _scores(export)
  if scores:
    yield from ('', '## Scores', '', '| score | value |', '|---|---|')
    yield from (f'| {key} | {value} |' for key, value in scores)
  yield from ('', '## Licence', '')
  if licence == UNKNOWN:
    yield 'Not told. It depends on the text and the weights of the training.'
  else:
    yield licence


def _description(export: Export) -> str:
  found, model = export.weights, export.weights.model
  shapes: dict = {}
  for path, leaf in found.shapes.items():
    strict.put(shapes, path.split('/'), leaf)
  count = layers.num_parameters(
    shapes, model.vocab_size or getattr(model, 'num_words', 0)
  )
  parts = [f'{NAMES.get(found.name, found.name)} of {model.num_layers} layers']
  if hasattr(model, 'embed_dim'):
    parts.append(f'{model.embed_dim} wide')
  parts.append(f'{count:,} parameters')
  if found.tokenizer is not None:
    parts.append(f'{found.tokenizer.description}, {model.vocab_size:,} pieces')
  if hasattr(model, 'max_length'):
    parts.append(f'at most {model.max_length} tokens')
  return f'{", ".join(parts)}. Written by Sesame.'


def _pipeline(export: Export) -> str:
  if export.vectors is not None:
    return 'sentence-similarity'
  found = export.weights
  if export.task:
    return PIPELINES.get(export.task['kind'], 'feature-extraction')
  if not reads_types(found):
    return 'text-generation'
  return 'fill-mask' if 'mlm' in found.model.heads else 'feature-extraction'


def _use(export: Export, name: str, architecture: str) -> Iterator[str]:
  found, form = export.weights, export.request.form
  yield from ('## Use', '')
  if found.reads_words:
    yield (
      'options.json and lm_weights.hdf5 are read by the released programs of'
      ' ELMo, words.txt has the words of its softmax.'
    )
    return
  types = ", 'token_type_ids': [[0] * len(ids[0])]"
  code = _CODE[form].format(
    name=name,
    architecture=architecture,
    types=types if getattr(found.model, 'num_token_types', 0) else '',
  )
  yield from ('```python', code.rstrip(), '```')
  told = [*_told(export)]
  if told:
    yield ''
    yield from (f'- {line}' for line in told)


def _told(export: Export) -> Iterator[str]:
  """Yields facts that the files do not tell by themselves."""
  found, vectors = export.weights, export.vectors
  kind = export.task.get('kind')
  if vectors is not None:
    scaled = ', of length 1' if vectors.normalize else ''
    yield f'The vector of a text is of the pool `{vectors.pool}`{scaled}.'
    if vectors.prompt:
      yield f'A text is read behind the prompt {vectors.prompt!r}.'
  if export.request.form == 'onnx':
    yield 'Batch and length are free; the inputs are int64.'
    if vectors is not None:
      yield 'The output `sentence_embedding` has the vectors of texts.'
  if export.request.int8:
    yield (
      'Matrices have 8 bits, by an operator of onnxruntime (MatMulNBits) that'
      ' other programs may lack.'
    )
  if kind == 'choice':
    yield (
      'A row of the inputs is a choice: [batch, choices, length].'
      if reads_types(found)
      else 'A row is a choice, and the largest output is the answer.'
    )
  if kind in ('tagging', 'roles'):
    piece = 'first' if reads_types(found) else 'last'
    yield f"A word's tag is that of its {piece} piece."
  if kind and not reads_types(found):
    yield (
      'A text is framed by symbols that its tokenizer does not add: start,'
      f' text, classify, with the ids {_symbols(export)}; a pair has the'
      ' delimiter between its texts.'
    )


def _symbols(export: Export) -> str:
  from data.inputs import framing

  symbols = framing.symbols_of(export.weights.tokenizer, framing.FORMS['gpt'])
  names = ('start', 'delimiter', 'classify')
  return ', '.join(
    f'{name} {number}' for name, number in zip(names, symbols.ids, strict=True)
  )


def _training(export: Export) -> Iterator[str]:
  config, results = export.config, export.results or {}
  if config is None:
    found = export.weights
    yield (
      f'Published weights ({found.kind}), written anew: their own card says how'
      ' they were trained.'
    )
    return
  rows: list[tuple[str, Any]] = []
  if 'task' in config:
    rows.append(('task', config.task.name))
  rows += [
    ('data', _place(config.data.source)),
    ('begun with', _place(config.init.weights)),
    ('steps', results.get('steps')),
    ('model of step', results.get('best_step')),
    ('objective', config.train.get('objective')),
    ('seed', results.get('seed')),
    ('seconds', duration(results['seconds']) if 'seconds' in results else None),
    ('device', results.get('device')),
    ('revision of the code', results.get('revision')),
    ('digest of the parameters', results.get('state_sha256')),
  ]
  yield from ('| | |', '|---|---|')
  yield from (
    f'| {key} | {value} |' for key, value in rows if value is not None
  )
  if not results:
    yield from ('', 'The run has not ended: there are no scores.')


def _place(value: Any) -> str | None:
  """Returns a path without its folders, which are of one machine; a name."""
  if not isinstance(value, str) or not value:
    return None
  parts = value.split('/')
  is_path = value.startswith(('/', '.', '~')) or len(parts) > 2
  return [part for part in parts if part][-1] if is_path else value


def _scores(export: Export) -> Sequence[tuple[str, str]]:
  metrics = (export.results or {}).get('metrics', {})
  return [
    (key.removeprefix('eval/'), f'{value:.4g}')
    for key, value in sorted(metrics.items())
    if key.startswith('eval/')
  ]


def _licence(export: Export) -> str:
  """Returns the licence that is given, or that the weights' own card has."""
  if export.request.licence is not None:
    return export.request.licence
  card = export.weights.folder / FILE
  if export.weights.kind != 'workdir' and card.exists():
    front = re.match(r'---\n(.*?\n)---\n', card.read_text(), re.DOTALL)
    line = front and re.search(r'^license: *(\S+) *$', front[1], re.MULTILINE)
    if line:
      return line[1].strip('"\'')
  return UNKNOWN
