"""Shows how a model reads one text or two, token by token.

python -m train.show_input WEIGHTS 'My dog is cute.' 'He likes playing.' --mask

For a BERT, the command shows pieces, token types and positions (Devlin et al.
2018, figure 2); for a GPT, the row of a task with its start, delimiter and
extract tokens (Radford et al. 2018, figure 1); for an ELMo, the characters of
each word. --mask adds the tokens that a BERT's pre-training hides and predicts,
or the next tokens that a GPT or ELMo predicts.
"""

import argparse

from train.host import console, files
from train.run import command

ENDINGS = ('.html', '.png', '.json')


def main() -> None:
  """Entry point."""
  parser = command.parser('show_input', __doc__, command.ALL_MODELS)
  add, switch, _ = command.adders(parser)
  add(
    'texts',
    type=command.text,
    metavar='TEXT',
    nargs='+',
    help='one text or two',
  )
  switch(
    '--mask', help='also show the tokens that pre-training hides and predicts'
  )
  add('--seed', type=int, help='random seed of --mask; by default 0')
  switch(
    '--not_next',
    help='for --mask and a BERT: the second text comes from another document,'
    ' so the next-sentence label is 1',
  )
  switch(
    '--both_orders',
    help='for a GPT and two texts: also show the row with the texts in the'
    ' other order, as in tasks whose texts have no order',
  )
  add('--out', metavar='FILE', help='file to write: .html, .png or .json')
  switch('--overwrite', help='replace the file of --out if it exists')
  command.add_json(parser)
  arguments = parser.parse_args()
  if len(arguments.texts) > 2:
    parser.error(f'found {len(arguments.texts)} texts, expected one or two')
  for name in ('seed', 'not_next'):
    if getattr(arguments, name) and not arguments.mask:
      parser.error(f'--{name} is of --mask')
  if arguments.not_next and len(arguments.texts) < 2:
    parser.error('--not_next is of two texts')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is opened.
  if arguments.out:
    files.check_new(
      arguments.out, overwrite=arguments.overwrite, endings=ENDINGS
    )
  for number, text in enumerate(arguments.texts, start=1):
    if not text.strip():
      raise ValueError(f'text {number} is empty: {text!r}')
  seed = arguments.seed or 0
  if not 0 <= seed < 1 << 32:
    raise ValueError(f'--seed={seed}: expected 0 to {(1 << 32) - 1:,}')
  from train.vectors.trained_model import TrainedModel
  from train.views import input_page, input_rows

  found = TrainedModel(arguments.weights, arguments.tokenizer, use='tasks')
  masks = None
  if arguments.mask:
    masks = input_rows.Masks(seed, follows=not arguments.not_next)
  rows = input_rows.describe(
    found, arguments.texts, both_orders=arguments.both_orders, masks=masks
  )
  if arguments.json:
    shown = input_page.as_dict(rows, found.folder.name)
    console.show(files.as_json(shown))
  else:
    for row in rows:
      for line in input_page.as_text(row):
        console.show(line)
      console.show()
  if arguments.out:
    about = f'{found.name}, {found.folder}'
    input_page.write(arguments.out, rows, found.folder.name, about)
    told = f'the rows are in {arguments.out}'
    console.conclude(told, as_json=arguments.json)


if __name__ == '__main__':
  main()
