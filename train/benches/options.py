"""The benches and their options, read before JAX is imported."""

OPTIONS = {
  'text': 'folder or glob of running text for store',
  'trees': 'folder of Stanford sentiment trees for the embeddings and'
  ' word_cache',
  'weights': 'folder of a BERT as Hugging Face publishes it, for embedding,'
  ' finetune and squad_features; any language model for word_cache',
  'data': 'folder of labelled sets for finetune and squad_features',
  'sentences': 'embed N sentences, evenly spread (default: all)',
  'topology': 'a TPU slice such as v5litepod-1, on a chip of which inference is'
  " timed by the compiler's clock, without hardware (default: this machine)",
  'uses': 'of vectors, classes and tags those for which inference is timed,'
  ' with commas between (default: all)',
}
NUMBERS = ('sentences',)
OPTIONAL = (
  'sentences',
  'topology',
  'uses',
)  # a bench needs all its other options
OF_BENCHES = {
  'store': ('text',),
  'batches': (),
  'step': (),
  'units': (),
  'gpt2_step': (),
  'decoding': (),
  'embedding': ('trees', 'weights', 'sentences'),
  'elmo_step': (),
  'elmo_embedding': ('trees', 'sentences'),
  'word_cache': ('trees', 'weights', 'sentences'),
  'finetune': ('data', 'weights'),
  'inference': ('topology', 'uses'),
  'squad_features': ('data', 'weights'),
  'first_step': (),
  'save': (),
  'load': (),
  'storage': (),
  'accelerator': (),
}
