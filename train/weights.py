"""Looks at weights, and turns workdirs into published formats and back.

  python -m train.weights inspect WEIGHTS [--json]
  python -m train.weights export WEIGHTS FOLDER [--form FORM]
  python -m train.weights import WEIGHTS WORKDIR
  python -m train.weights average WEIGHTS ... WORKDIR [--last N]

WEIGHTS is a workdir (the folder of a run), a folder of published weights, or a
name on Hugging Face's hub. If the vocabulary is not in the folder, name it by
`--tokenizer PATH`. Rows of the token table beyond the vocabulary are padding,
and left out.

`inspect` prints sizes, format and missing parts, and reads no array. `export`
writes files that transformers and its AutoTokenizer load (if the vocabulary is
unknown, only the weights), or for an ELMo files that the released program
reads. `--form=sentence-transformers` writes a BERT with its pooling,
`--form=onnx` a BERT, GPT or GPT-2 with its head as one graph. `import` writes
published weights as a workdir, which other commands take as WEIGHTS. `average`
writes the means of several models of one form as such a workdir, with --last
those of the newest checkpoints that a pre-training kept.
"""

import argparse
import sys

from absl import logging

from train.host import console, files
from train.run import command

FORMS = ('transformers', 'sentence-transformers', 'onnx')


def _print_report(report: dict[str, files.Json], tokenizer: str | None) -> None:
  """Prints the report of `convert.inspect`."""
  from models.pretrained.weights import TOKENIZER_OPTION
  from train.architectures import families
  from train.params import warm_start

  rows: list[tuple[str, files.Json]] = []
  for name, value in report.items():
    if name in ('overrides', 'problems'):
      continue
    if isinstance(value, dict):
      rows += [(f'{name}.{key}', item) for key, item in value.items()]
    elif isinstance(value, list):
      more = f' and {len(value) - 6} more' if len(value) > 6 else ''
      rows.append((name, ', '.join(value[:6]) + more or 'none'))
    else:
      rows.append((name, f'{value:,}' if isinstance(value, int) else value))
  console.table(rows, report['folder'], console.show)
  if report['problems']:
    return
  reads_words = families.ARCHITECTURES[report['architecture']].reads_words
  if not (report['tokenizer'] or reads_words):
    console.show(
      '\nNo vocabulary lies beside them: name it by'
      f' {TOKENIZER_OPTION}, and to train.main by'
      f' {warm_start.TOKENIZER_OPTION}.'
    )
  begin = {'init.weights': report['folder'], 'data.tokenizer': tokenizer}
  named = [warm_start.override(*item) for item in begin.items() if item[1]]
  console.show('\nTo begin a run with them, pass to train.main:')
  console.show('  ' + ' '.join(named + report['overrides']))


def main() -> None:
  """Entry point."""
  parser = command.parser('weights', __doc__)
  jobs = parser.add_subparsers(dest='job', metavar='JOB', required=True)
  for job, target, result in (
    ('inspect', None, 'print the sizes of weights, without reading an array'),
    ('export', 'FOLDER', 'write files that other programs load'),
    ('import', 'WORKDIR', 'write published weights as a workdir'),
    ('average', 'WORKDIR', 'write the means of several models as a workdir'),
  ):
    options = jobs.add_parser(job, help=result)
    nargs = '+' if job == 'average' else None
    command.add_weights(options, command.ALL_MODELS, nargs)
    if target:
      options.add_argument('target', metavar=target, help='new folder to write')
    else:
      command.add_json(options)
    if job == 'export':
      _add_forms(options)
    if job == 'average':
      options.add_argument(
        '--last',
        type=command.positive,
        metavar='N',
        help='take the newest N kept checkpoints of each workdir',
      )
  arguments = parser.parse_args()
  logging.set_verbosity(logging.WARNING)  # orbax tells every file it writes
  command.main(arguments, _run)


def _add_forms(options: argparse.ArgumentParser) -> None:
  add, switch, _ = command.adders(options)
  add(
    '--form',
    choices=FORMS,
    default=FORMS[0],
    help='program that opens the files; by default %(default)s',
  )
  add(
    '--pool',
    choices=('mean', 'cls', 'last'),
    help='for sentence-transformers and onnx: tokens that make the vector of a'
    ' sentence; by default as the weights were trained, else mean (a plain'
    ' model gets no such vector in an onnx file)',
  )
  add(
    '--normalize',
    action=argparse.BooleanOptionalAction,
    help='for sentence-transformers and onnx: scale the vector of a sentence to'
    ' length 1, or not; by default as the weights were trained',
  )
  switch(
    '--int8',
    help="for onnx: round the matrices to 8 bits, by onnxruntime's operator"
    ' MatMulNBits',
  )
  add(
    '--licence',
    metavar='ID',
    help='licence of the weights, for the model card; by default the licence in'
    ' the published card',
  )


def _run(arguments: argparse.Namespace) -> None:
  if arguments.job == 'export':
    files.check_folder('FOLDER', arguments.target)
  from train.params import convert

  if arguments.job != 'inspect':
    named = arguments.weights, arguments.target, arguments.tokenizer
    what = f'{arguments.weights} is'
    if arguments.job == 'import':
      convert.import_(*named)
    elif arguments.job == 'average':
      averaged = convert.average(*named, arguments.last)
      what = f'The mean of {", ".join(averaged)} is'
    else:
      from train.exports import exported, folders

      kind = exported.ExportRequest
      asked = {key: getattr(arguments, key) for key in kind._fields}
      folders.export(*named, kind(**asked))
    console.show(f'{what} written to {arguments.target}.')
    return
  report = convert.inspect(arguments.weights, arguments.tokenizer)
  if arguments.json:
    print(files.as_json(report))
  else:
    _print_report(report, arguments.tokenizer)
  if report['problems']:
    for problem in report['problems']:
      print(f'problem: {problem}', file=sys.stderr)
    sys.exit(1)


if __name__ == '__main__':
  main()
