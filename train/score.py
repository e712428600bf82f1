"""Log-probability of a text, or of each of several choices.

python -m train.score WEIGHTS TEXT [--context N] [--stride N]
python -m train.score WEIGHTS --text 'The cat sat.' --out page.html
python -m train.score WEIGHTS TEXT --by_length words [--bins 5,10,20]
python -m train.score WEIGHTS --choices FILE.jsonl

--out writes a page that colours each token by its surprise (minus log2 of its
probability). When a token is pointed at, the page shows the likeliest tokens in
its place. A GPT scores the text as a whole. A BERT, which hides each piece in
turn, and an ELMo, which reads in both directions, score each line by itself.
--context, --stride, --detokenizer, --log_probs, --by_length and --choices need
a model that reads from left to right (GPT, GPT-2, LSTM, NNLM).

Words are separated by white space. Published word perplexities (WikiText, Penn
Treebank) count each line end as a word, too: compare them with
word_perplexity_with_line_ends.
"""

import argparse
from typing import TYPE_CHECKING

from data.text import detokenize, text_files
from train.host import console, files
from train.language import inputs
from train.run import command

if TYPE_CHECKING:
  from train.language.surprise import Reading
  from train.vectors.trained_model import TrainedModel


# Options of models that read from left to right.
OF_LEFT_TO_RIGHT = (
  'context',
  'stride',
  'detokenizer',
  'log_probs',
  'by_length',
)
TOP = 5


def main() -> None:
  """Entry point."""
  parser = command.parser('score', __doc__, command.ALL_MODELS)
  add, switch, number = command.adders(parser)
  add('file', nargs='?', metavar='TEXT', help='UTF-8 file of the text')
  add('--text', type=command.text, help='the text itself, in place of a file')
  add('--out', metavar='FILE', help='write a page (.html) of the text')
  number(
    '--top',
    metavar='N',
    help='for --out: how many of the likeliest tokens the page shows; by'
    ' default'
    f' {TOP}',
  )
  switch('--overwrite', help='replace the page if it exists')
  number(
    '--context',
    help='tokens that the model sees at once; by default all its positions',
  )
  number(
    '--stride',
    help='tokens from the start of a window to the start of the next; by'
    ' default half the context',
  )
  add(
    '--detokenizer',
    choices=sorted(detokenize.DETOKENIZERS),
    help='tokenisation of TEXT that is undone before scoring; by default none',
  )
  add(
    '--log_probs',
    metavar='FILE',
    help='CSV file for the log-probability of each token',
  )
  add(
    '--by_length',
    choices=('words', 'tokens'),
    help='score each line of TEXT by itself, and print a perplexity for each'
    ' bin of lengths, in words or in tokens',
  )
  add(
    '--bins',
    metavar='N,...',
    help='for --by_length: the longest length of each bin; by default'
    f' {",".join(map(str, inputs.LENGTHS))}',
  )
  add(
    '--choices',
    metavar='FILE',
    help='in place of a text, score choices that continue a context: each line'
    ' of this JSONL file has context, choices (which begin with a space) and'
    ' perhaps label, the number of the right choice, from 0',
  )
  command.add_json(parser)
  arguments = parser.parse_args()
  given = (arguments.file, arguments.text, arguments.choices)
  if sum(each is not None for each in given) != 1:
    parser.error('give one of TEXT, --text and --choices FILE')
  for name in (*OF_LEFT_TO_RIGHT, 'out'):
    if arguments.choices and getattr(arguments, name) is not None:
      parser.error(f'--{name} is of a TEXT, not of --choices')
  if arguments.out and arguments.by_length:
    parser.error('--out is of a whole TEXT, not of --by_length')
  if arguments.top and not arguments.out:
    parser.error('--top is of --out')
  if arguments.bins and not arguments.by_length:
    parser.error('--bins is of --by_length')
  if arguments.log_probs and arguments.by_length:
    parser.error('--log_probs is of a whole TEXT, not of --by_length')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  files.check_writable(arguments.log_probs)
  if arguments.out:
    files.check_new(
      arguments.out, overwrite=arguments.overwrite, endings=('.html',)
    )
  if arguments.choices:
    questions = inputs.read_choices(arguments.choices)
  elif arguments.text is not None:
    text = arguments.text
  else:
    text = text_files.read_text(arguments.file)
  if not arguments.choices and not text.strip():
    raise ValueError(f'{arguments.file or "--text"} is empty, expected a text')
  bins = inputs.parse_bins(arguments.bins)
  from train.architectures import families
  from train.language import by_length, scoring, sentence_sums, surprise
  from train.vectors.trained_model import TrainedModel

  left_to_right = bool(arguments.choices) or any(
    getattr(arguments, name) is not None for name in OF_LEFT_TO_RIGHT
  )
  found = TrainedModel(
    arguments.weights,
    arguments.tokenizer,
    use='score' if left_to_right else None,
  )
  sentence_sums.check_model(found, 'sum')
  if arguments.out:
    surprise.check_top(found, '--top', arguments.top or TOP)
  if arguments.choices:
    figures = _score_choices(scoring.score_choices(found, questions))
  elif not families.is_for(found.name, 'score'):
    figures = _score_lines(found, text, arguments)
  else:
    options = {
      'context': arguments.context,
      'stride': arguments.stride,
      'detokenizer': arguments.detokenizer or 'none',
    }
    if arguments.by_length:
      options |= {'unit': arguments.by_length, 'bins': bins}
      figures = by_length.score_lines(found, text, **options)
      if not arguments.json:
        figures = by_length.shown(figures)
    else:
      figures, tokens, log_probs = scoring.score_text(found, text, **options)
      if arguments.out:
        figures |= _write_page(found, tokens, figures, arguments)
    if arguments.log_probs:
      scoring.write_log_probs(
        arguments.log_probs, found.tokenizer, tokens, log_probs
      )
  title = arguments.file or arguments.choices or arguments.weights
  console.print_figures(figures, title, as_json=arguments.json)


def _score_choices(results: list[dict]) -> dict[str, files.Json]:
  told = [result for result in results if 'label' in result]
  right = sum(result['choice'] == result['label'] for result in told)
  figures: dict[str, files.Json] = {'questions': len(results)}
  if told:
    figures['accuracy'] = right / len(told)
  return figures | {'results': results}


def _write_page(
  found: 'TrainedModel',
  tokens: list[int],
  figures: dict[str, files.Json],
  arguments: argparse.Namespace,
) -> dict[str, files.Json]:
  """Writes the page of a GPT or LSTM; returns what it shows."""
  from train.language import surprise

  surprise.check_size(arguments.out, len(tokens))
  reading = surprise.read_whole(
    found,
    tokens,
    context=figures['context'],
    stride=figures['stride'],
    top=arguments.top or TOP,
  )
  return _written(found, [reading], arguments)


def _score_lines(
  found: 'TrainedModel', text: str, arguments: argparse.Namespace
) -> dict[str, files.Json]:
  """Scores each line by a BERT or an ELMo, and writes the page."""
  from train.language import sentence_sums, surprise

  lines = [line for line in text.splitlines() if line.strip()]
  if arguments.out:
    sizes = map(len, sentence_sums.encode(found, lines))
    surprise.check_size(arguments.out, sum(sizes))
    top = arguments.top or TOP
    readings = list(surprise.read_lines(found, lines, top=top))
    scored: dict[str, list[float]] = {}
    for each in readings:
      scored.setdefault(each.name, []).extend(each.scored)
  else:
    scored = surprise.scores(found, lines)
  figures: dict[str, files.Json] = {
    'scoring': sentence_sums.describe(found, 'sum', within_word=False),
    'lines': len(lines),
  }
  for name, log_probs in scored.items():
    prefix = f'{name}_' if name else ''
    figures |= {
      f'{prefix}tokens': len(log_probs),
      f'{prefix}nats': -sum(log_probs),
      f'{prefix}perplexity': surprise.perplexity(log_probs),
    }
  if arguments.out:
    figures |= _written(found, readings, arguments)
  return figures


def _written(
  found: 'TrainedModel',
  readings: list['Reading'],
  arguments: argparse.Namespace,
) -> dict[str, files.Json]:
  from train.language import surprise

  about = f'{found.name}, {found.folder}: point at a token, or reach it by Tab'
  surprise.write(arguments.out, readings, found.folder.name, about)
  console.conclude(f'the page is {arguments.out}', as_json=arguments.json)
  return {'readings': [reading.as_dict() for reading in readings]}


if __name__ == '__main__':
  main()
