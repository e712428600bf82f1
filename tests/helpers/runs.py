"""Whole runs, as the command makes them, in this process."""

from train.pretrain import job as pretraining
from train.run import training, workdirs
from train.transfer import finetune


def train(config, workdir, *, dry_run=False, began=None, shared=None):
  """Returns the results of a run; None after a dry run."""
  kind = finetune if 'task' in config else pretraining
  kind.check(config)
  job = kind.make(config, workdir, **({'shared': shared} if shared else {}))
  if job is None:
    return workdirs.read_results(workdir)
  return training.train(job, workdir, dry_run=dry_run, began=began)
