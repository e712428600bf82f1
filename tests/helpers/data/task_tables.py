"""Tables of labelled sets."""

PARSES = 'sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|'
PARSES += 'sentence2_parse|sentence1|sentence2'


def table(*rows):
  """A tab-separated table of rows with | between their fields."""
  return ''.join('\t'.join(row.split('|')) + '\n' for row in rows)
