"""Tables of figures in Markdown, and the names of layers."""

from collections.abc import Sequence


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns an aligned table: the first column left, the others right."""
  widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
  rule = [
    f':{"-" * (widths[0] - 1)}',
    *(f'{"-" * (n - 1)}:' for n in widths[1:]),
  ]
  lines = [
    [cells[0].ljust(widths[0])]
    + [cell.rjust(n) for cell, n in zip(cells[1:], widths[1:], strict=True)]
    for cells in (header, *rows)
  ]
  lines.insert(1, rule)
  return ''.join(f'| {" | ".join(cells)} |\n' for cells in lines)


def layer_names(num_layers: int) -> list[str]:
  """Returns the names of L layers, embeddings first."""
  return ['0 (embeddings)', *map(str, range(1, num_layers))]
