"""Token stores of whole words, and the config of an ELMo's run of seconds."""

import json
import pydoc_data.topics

import jax
import numpy as np

from data.examples import pipeline
from data.store import build, corpus
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import sharding
from train.pretrain import assemble
from train.run import checkpoint, metrics, settings, training_phases

BREAK = '== .*'
WORDS = 300  # V, of them; no multiple of 128, so the softmax is padded
LENGTH, ROWS, STEPS = 8, 4, 12


def write_topics(folder, first, last):
  """Writes the manual's topics of these numbers into a text; returns it."""
  topics = sorted(pydoc_data.topics.topics.items())[first:last]
  path = folder / f'topics-{first}-{last}.txt'
  path.write_text('\n'.join(f'== {name}\n{text}\n' for name, text in topics))
  return path


def build_words(text, folder, tokenizer=f'train:words:{WORDS}'):
  """Builds a store of a text in a folder; returns the folder."""
  build.build_store(
    str(text), str(tokenizer), folder, document_break=BREAK, progress=False
  )
  return folder


def small_elmo_config(store, **overrides):
  """Returns the config of a run of STEPS steps; of keys, __ is the point."""
  return settings.with_overrides(
    settings.load_config('elmo_tiny'),
    {
      'model.lstm_dim': 24,
      'model.projection_dim': 8,
      'model.filters': ((1, 8), (3, 16)),
      'model.char_embed_dim': 4,
      'model.num_samples': 64,
      'model.dropout_rate': 0.1,
      'data.folder': str(store),
      'data.loader': 'plain',
      'train.phases': ((STEPS, LENGTH, ROWS, 'continue'),),
      'train.log_every': 1,
      'train.eval_every': 6,
      'train.checkpoint_every': 4,
      'train.peak_tflops': 0.1,
      'eval.global_batch': 4,
      'eval.max_windows': 2000,  # all that is held out
      **{key.replace('__', '.'): value for key, value in overrides.items()},
    },
  )


def make_job(config, devices=None):
  """Returns the store of a config, and its run as planned for some devices."""
  store = corpus.open_store(config.data.folder)
  mesh = sharding.make_mesh(config.mesh, devices=devices or jax.devices()[:1])
  phases = training_phases.resolve_phases(config, {})
  counts = families.objective_of(config).token_counts(store)
  vocabulary = Vocabulary.of(store.tokenizer, counts)
  return store, assemble.build_parts(config, phases, vocabulary, mesh)


def run_steps(config, num_steps, *, devices=None, params=None):
  """Takes the first steps of a run, without the loop round them.

  Args:
    config: of the run.
    num_steps: how many.
    devices: the first one by default.
    params: to start from; those that are drawn by default.

  Returns:
    The reports, and the state after them, on the host.
  """
  store, job = make_job(config, devices)
  (phase,) = job.phases
  examples = {
    phase.length: job.objective.open_examples(
      config, store, phase.length, held_out=False
    )
  }
  reports = []
  with sharding.scope(job.mesh, config.mesh.rules):
    state = job.create_state()
    if params is not None:
      state = state.replace(params=params)
    train_step = job.train_step(phase.length)
    for step in range(num_steps):
      batch = pipeline.train_batch(examples, job.phases, 0, step)
      state, report = train_step(state, sharding.put_batch(batch, job.mesh))
      reports.append(jax.device_get(report))
    return reports, jax.device_get(state)


def restore_params(workdir, config):
  """Returns the parameters of a workdir's newest checkpoint."""
  _, job = make_job(config)
  return checkpoint.restore_params(workdir, job.shapes.params)


def saved(workdir, step=STEPS):
  """Returns 32 bits of each array of a checkpoint, by path."""
  file = workdir / 'checkpoints' / str(step) / checkpoint.METADATA_FILE
  return json.loads(file.read_text())['custom_metadata']['checksums']


def read_rows(workdir):
  """Returns the metrics of a workdir, but times."""
  return {
    (step, name): value
    for step, name, value in metrics.read_metrics(workdir)
    if not name.startswith('time/')
  }


# --- Held-out text read naively: a row at a time, all words scored


def naive_evaluation(params, config):
  """Returns eval's perplexities: forward, backward and of the unigrams."""
  store, job = make_job(config)
  words = store.tokenizer
  sentences = {True: [], False: []}
  for document in range(len(store.documents) - 1):
    for s in range(*store.documents[document : document + 2]):
      ids = store.tokens[store.sentences[s] : store.sentences[s + 1]].tolist()
      sentences[bool(store.held_out[document])].append(ids)
  begin, end, unknown = 0, 1, 2
  # Inputs and targets of the forward tower, then of the backward one.
  text = np.array(
    [
      column
      for ids in sentences[True]
      for column in zip(
        [begin, *ids],
        [*ids, end],
        [end, *ids[::-1]],
        [*ids[::-1], begin],
        strict=True,
      )
    ]
  )
  rows = config.eval.global_batch
  bounds = [row * len(text) // rows for row in range(rows + 1)]
  longest = max(np.diff(bounds))

  @jax.jit
  def read(params, characters):
    def log_probs(model, characters):
      top, _ = model.run_streams(model.encode(characters), train=False)
      return jax.nn.log_softmax(model.logits(top)[..., : model.vocab_size])

    return job.model.apply({'params': params}, characters, method=log_probs)

  counts = np.ones(WORDS)
  for ids in sentences[False]:
    for word in [*ids, end]:
      counts[word if word < WORDS else unknown] += 1
  unigram = np.log(counts / counts.sum())
  totals = np.zeros(3)
  for first, stop in zip(bounds, bounds[1:], strict=False):
    part = text[first:stop]
    inputs = np.pad(part[:, ::2], ((0, longest - len(part)), (0, 0)))
    scores = np.asarray(read(params, words.characters[inputs.T[:, None]]))
    for at, (_, forward, _, backward) in enumerate(part.tolist()):
      for tower, target in enumerate([forward, backward]):
        target = target if target < WORDS else unknown
        totals[tower] -= scores[tower, 0, at, target]
        totals[2] -= unigram[end if target == begin else target] / 2
  return np.exp(totals / len(text))
