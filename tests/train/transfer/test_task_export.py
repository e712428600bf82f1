"""What was fine-tuned answers the same with transformers' classes."""

import json

import numpy as np
import pytest
import torch

from data.inputs import batches
from train.engine import sharding
from train.exports import folders
from train.transfer import predictors, task_data

pytestmark = pytest.mark.usefixtures('one_device')
CLASSES = {
  'own pairs': 'BertForSequenceClassification',
  'own scores': 'BertForSequenceClassification',
  'swag': 'BertForMultipleChoice',
  'conll2003': 'BertForTokenClassification',
  'own questions': 'BertForQuestionAnswering',
}


@pytest.mark.parametrize('kind', CLASSES)
def test_transformers_answers_the_same(run_of, tmp_path, kind):
  import transformers

  config, workdir, _ = run_of(kind)
  folders.export(workdir, tmp_path / 'exported')
  theirs, found = getattr(transformers, CLASSES[kind]).from_pretrained(
    tmp_path / 'exported', output_loading_info=True
  )
  assert not any(found.values()), found
  _, job, facts = predictors.open_member(workdir)
  params = job.load(workdir)
  if facts['labels']:
    names = [theirs.config.id2label[i] for i in range(len(facts['labels']))]
    assert names == facts['labels']
  # The class that the config names is the one that a pipeline would take.
  written = json.loads((tmp_path / 'exported' / 'config.json').read_text())
  if kind != 'swag':  # which is in nothing different but in its inputs
    assert written['architectures'] == [CLASSES[kind]]
  job.task = task_data.open_task(config)
  splits = job.open_splits(['dev'])
  split = splits['dev']
  assert isinstance(split.batches, batches.Batches)
  batch = next(split.batches.eval_batches(8))
  with sharding.scope(job.mesh, job.config.mesh.rules):
    ours = job.predict_step(params, sharding.put_batch(batch, job.mesh))
  with torch.no_grad():
    outputs = theirs.eval()(
      **{
        name: torch.from_numpy(np.asarray(batch[key]).astype(np.int64))
        for name, key in (
          ('input_ids', 'tokens'),
          ('attention_mask', 'token_mask'),
          ('token_type_ids', 'token_types'),
        )
      }
    )
  if kind == 'own questions':
    logits = torch.stack([outputs.start_logits, outputs.end_logits], -1)
  else:
    logits = outputs.logits
  logits = logits.numpy()
  mask = np.ones(logits.shape[:1], bool)
  if kind in ('conll2003', 'own questions'):
    mask = batch['token_mask']
  np.testing.assert_allclose(
    np.asarray(ours['logits'])[mask], logits[mask], atol=1e-4
  )
