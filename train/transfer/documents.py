"""The kind of task whose answers are the clusters of a document."""

from models.elmo_tasks.coref import loss
from train.transfer.kinds import Batch, Kind, Outputs


def _cluster_losses(_: object, outputs: Outputs, batch: Batch) -> tuple:
  """Returns the negative log-likelihoods of the documents' clusters."""
  return loss.antecedent_losses(outputs, batch['labels']), None


KIND = Kind(
  '',  # no head of an encoder reads whole documents
  lambda task, _: len(task.labels) + 1,  # genres, the first of any other
  _cluster_losses,
  summed=True,
  metric_names=(),
  answers=loss.links,
  lengths=lambda outputs, _: (outputs['starts'] >= 0).sum(axis=-1),
)
