"""The table of kinds, and how few files know a kind by its name."""

import ast
import inspect
import pathlib

import pytest

from data.scoring import kinds
from data.tasks import examples
from train.transfer import encoders, task_losses

ROOT = pathlib.Path(__file__).parents[3]
EXAMPLES = {
  name
  for name, value in vars(examples).items()
  if inspect.isclass(value) and issubclass(value, examples.Example)
}
MOST = 4  # product files


def branches(source):
  """Whether a file compares a kind by its name, or an example by its class."""
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Compare | ast.MatchValue):
      parts = {part.value for part in ast.walk(node) if _is_text(part)}
      if parts & kinds.KINDS.keys():
        return True
    if isinstance(node, ast.Call) and ast.unparse(node.func) == 'isinstance':
      if any(name in ast.unparse(node.args[1]) for name in EXAMPLES):
        return True
  return False


def _is_text(node):
  return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_few_files_branch_on_a_kind():
  files = [
    path
    for package in ('data', 'train')
    for path in (ROOT / package).rglob('*.py')
    if branches(path.read_text())
  ]
  assert len(files) <= MOST, files


@pytest.mark.parametrize(
  'line',
  [
    "if task.kind == 'span': pass",
    "found = task.kind in ('tagging', 'span')",
    'if isinstance(example, examples.SpanExample): pass',
    "match task.kind:\n  case 'choice': pass",
  ],
)
def test_a_branch_is_found(line):
  assert branches(line)
  assert not branches("kind = KINDS['span']\nif task.labels: pass")


def test_each_kind_has_a_loss():
  known = {*task_losses.LOSSES, 'clusters'}
  assert {kind.loss for kind in kinds.KINDS.values()} <= known
  units = {kind.unit for kind in kinds.KINDS.values()}
  assert units == encoders.HEADS.keys()


def test_metrics_that_a_kind_has_not_are_refused():
  task = examples.Task(
    'made', 'Made', 'classification', {}, None, labels=('a', 'b', 'c')
  )
  kinds.check_metrics(task)
  for metric in ('f1', 'em'):
    with pytest.raises(ValueError, match=f"found metrics .*'{metric}'"):
      kinds.check_metrics(
        examples.dataclasses.replace(task, metrics=(metric, 'accuracy'))
      )
