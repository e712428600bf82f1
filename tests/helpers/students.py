"""Configs of small students of small teachers."""

from train.run import settings


def student_of(config, teacher, *, model=None, **changes):
  """Returns the config of a student on the set of a fine-tuning's config."""
  name = 'distill:task=own' + (f',model={model}' if model else '')
  begun = settings.load_config(name)
  known = settings.flatten(begun)
  taken = {
    key: value
    for key, value in settings.flatten(config).items()
    if key in known
    and value is not None
    and not key.startswith(('init.', 'model.' if model else 'init.'))
  }
  taken['init.teacher'] = str(teacher)
  if not model:
    taken['init.layers'] = 'first:1'
  changes = {key.replace('__', '.'): value for key, value in changes.items()}
  return settings.with_overrides(begun, taken | changes)
