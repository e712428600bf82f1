"""A page of a model's attention: python -m train.attention WEIGHTS ...

python -m train.attention WEIGHTS --text 'She was tired' --out attention.html
python -m train.attention WEIGHTS --example nurse --out nurse.html
python -m train.attention WEIGHTS --sentences FILE --out shares.png
python -m train.attention WEIGHTS --winobias DIR --out bias.png

The page is one HTML file that needs no network. For each head of each layer it
draws lines from token to token, and shows the products of queries and keys. It
shows all heads at a glance, and tables of the shares of each head's attention
on the first token, [SEP], the tokens before and after, and so on. --sentences
and --winobias draw a figure in place of the page.
"""

import argparse

from train.host import console
from train.run import command
from train.views import attention_texts, outputs, winobias

EPILOG = """
A page has attention weights rounded to 1/255, and queries and keys in 8 bits;
--precise takes 16 bits for all of them. GPT and GPT-2 read --text and --pair as
one text."""


def _parser() -> argparse.ArgumentParser:
  parser = command.parser(
    'attention', __doc__, command.ALL_MODELS, epilog=EPILOG
  )
  add, switch, _ = command.adders(parser)
  add('--text', type=command.text, help='the text to read')
  add(
    '--pair',
    type=command.text,
    metavar='TEXT',
    help='a second text, which the model reads together with --text',
  )
  add(
    '--beside',
    type=command.text,
    metavar='TEXT',
    action='append',
    default=[],
    help='another text, read by itself and shown beside the first; may be'
    ' repeated',
  )
  add(
    '--example',
    choices=tuple(attention_texts.EXAMPLES),
    help='show sentences that come with Sesame, in place of --text',
  )
  add(
    '--sentences',
    metavar='FILE',
    help="draw a PNG of the shares of each head's attention on the first token,"
    ' [SEP] and so on, as means over the texts of this file, one on each line',
  )
  add(
    '--winobias',
    metavar='DIR',
    help='draw a PNG of how much attention a pronoun pays to the right one of'
    " two occupations; the folder holds WinoBias' files"
    ' pro_stereotyped_type1.txt.dev and so on, female_occupations.txt and'
    ' male_occupations.txt',
  )
  add(
    '--out',
    required=True,
    metavar='FILE',
    help='the file to write: .html, or .png with --sentences or --winobias',
  )
  add(
    '--json',
    metavar='FILE',
    help='also write the shares of each head, or the numbers of the figure, as'
    ' JSON; by default a PNG has such a file beside it, and a page has none',
  )
  switch('--precise', help='store each number of the page in 16 bits, not 8')
  switch('--overwrite', help='replace the files if they exist')
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
