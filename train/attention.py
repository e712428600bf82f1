"""A page of a model's attention: python -m train.attention WEIGHTS ...

python -m train.attention WEIGHTS --text 'She was tired' --out attention.html
python -m train.attention WEIGHTS --example nurse --out nurse.html
python -m train.attention WEIGHTS --sentences FILE --out shares.png
python -m train.attention WEIGHTS --winobias DIR --out bias.png

The page is one HTML file that needs no network: lines from token to token for
each head of each layer, all heads at a glance, queries times keys, and what
each head attends to, with all numbers. Of a file, or of WinoBias, it draws a
figure.
"""

import argparse

from train.host import console
from train.run import command
from train.views import attention_texts, outputs, winobias

EPILOG = """
A page holds weights rounded to 1/255, queries and keys in 8 bits; with
--precise in 16. GPT and GPT-2 read the two texts of a pair as one."""


def _parser() -> argparse.ArgumentParser:
  parser = command.parser(
    'attention', __doc__, command.ALL_MODELS, epilog=EPILOG
  )
  add, switch, _ = command.adders(parser)
  add('--text', type=command.text, help='the text')
  add(
    '--pair',
    type=command.text,
    metavar='TEXT',
    help='a second text, which the model reads too',
  )
  add(
    '--beside',
    type=command.text,
    metavar='TEXT',
    action='append',
    default=[],
    help='another text, read by itself and shown beside the first; repeatable',
  )
  add(
    '--example',
    choices=tuple(attention_texts.EXAMPLES),
    help='texts that are shipped',
  )
  add(
    '--sentences',
    metavar='FILE',
    help='draw, as PNG, what each head attends to, a mean over a file of a text'
    ' a line',
  )
  add(
    '--winobias',
    metavar='DIR',
    help='draw, as PNG, how much attention pronouns pay to the right one of two'
    ' occupations: the folder of the files pro_stereotyped_type1.txt.dev and so'
    ' on, of occupations too',
  )
  add('--out', required=True, metavar='FILE', help='the file to write')
  add(
    '--json',
    metavar='FILE',
    help='write the shares of each head as JSON; a PNG has its numbers beside'
    ' it by default',
  )
  switch('--precise', help='16 bits a number in the page, not 8')
  switch('--overwrite', help='replace the files')
  return parser


def main() -> None:
  """Entry point."""
  command.main(_parser().parse_args(), _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  out, json_file = arguments.out, arguments.json
  figure = attention_texts.choose_figure(
    sentences=arguments.sentences, winobias=arguments.winobias
  )
  if figure and json_file is None:
    json_file = outputs.beside(out)
  outputs.check_new(
    out,
    json_file,
    endings=outputs.PICTURE if figure else outputs.PAGE,
    overwrite=arguments.overwrite,
  )
  given = (arguments.example, arguments.text, arguments.pair, arguments.beside)
  read = {'tokenizer': arguments.tokenizer}
  if figure:
    attention_texts.check_none(figure, *given, precise=arguments.precise)
  if figure == 'winobias':
    pairs = winobias.read(arguments.winobias)
    from train.views import bias

    figures = bias.run(arguments.weights, pairs, out, json_file, **read)
  elif figure == 'sentences':
    texts = attention_texts.read(arguments.sentences)
    from train.views import share_map

    read['source'] = arguments.sentences
    figures = share_map.run(arguments.weights, texts, out, json_file, **read)
  else:
    texts = attention_texts.choose(*given)
    from train.views import attention_page

    figures = attention_page.run(
      arguments.weights,
      texts,
      out,
      json_file,
      precise=arguments.precise,
      **read,
    )
  console.print_figures(figures, out, as_json=False)


if __name__ == '__main__':
  main()
