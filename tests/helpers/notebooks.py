"""Runs the cells of a notebook."""

import nbclient
import nbformat


def run_cells(path, folder, replacements=None):
  """Runs all cells in a folder; returns what each printed.

  `replacements` are texts of code cells, each of which occurs once, and what
  takes their places. Raises nbclient's CellExecutionError where a cell fails.
  """
  notebook = nbformat.read(path, as_version=4)
  cells = [cell for cell in notebook.cells if cell.cell_type == 'code']
  for old, new in (replacements or {}).items():
    (cell,) = [cell for cell in cells if cell.source.count(old) == 1]
    cell.source = cell.source.replace(old, new)
  client = nbclient.NotebookClient(
    notebook, timeout=600, resources={'metadata': {'path': str(folder)}}
  )
  client.execute()
  return [
    ''.join(each.get('text', '') for each in cell.outputs) for cell in cells
  ]
