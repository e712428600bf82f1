"""The benches and their options, read before JAX is imported."""

OPTIONS = {
  'text': 'for store: folder or glob of running text',
  'trees': 'for embedding, elmo_embedding and word_cache: folder of the'
  ' Stanford Sentiment Treebank, with test.txt',
  'weights': 'for embedding, finetune and squad_features: folder of a BERT as'
  ' Hugging Face publishes it; for word_cache: any language model',
  'data': 'for finetune and squad_features: folder of labelled sets',
  'sentences': 'for embedding, elmo_embedding and word_cache: read N sentences,'
  ' evenly spaced (default: all)',
  'topology': 'for inference: a TPU slice such as v5litepod-1; the times are'
  " then the compiler's estimates for a chip of it, without the hardware"
  ' (default: this machine)',
  'uses': 'for inference: what to compute of a text, some of vectors, classes'
  ' and tags, separated by commas (default: all)',
}
NUMBERS = ('sentences',)
OPTIONAL = (
  'sentences',
  'topology',
  'uses',
)  # a bench needs all its other options
ABOUT = {
  'store': 'building a token store from --text',
  'batches': "making batches of BERT's examples on the host",
  'step': 'a training step of BERT-Base in float32, 8 rows of 128 tokens',
  'units': 'steps that mask whole units, beside steps that mask pieces',
  'recipes': 'steps of the modern recipes, beside steps of those of 2018',
  'gpt2_step': 'a training step of GPT-2 (124 M parameters)',
  'decoding': '128 tokens of GPT-2, decoded greedily',
  'embedding': 'vectors of sentences, by the BERT of --weights',
  'elmo_step': 'a training step of the published ELMo, 8 rows of 20 words',
  'elmo_embedding': 'vectors of sentences, by the published ELMo',
  'word_cache': 'vectors of words, computed and read from the cache on disk',
  'finetune': 'fine-tuning on MRPC, 40 steps of 32 examples',
  'inference': 'vectors, classes and tags of texts, by ELMo, GPT, BERT, ...',
  'squad_features': "making windows of SQuAD 1.1's training set (384 tokens)",
  'first_step': 'the time from the command to the first step of bert_tiny',
  'save': 'saving checkpoints of BERT-Base while it trains',
  'load': 'loading BERT-Base from safetensors',
  'storage': 'a run in a simulated bucket on this machine',
  'accelerator': 'training steps of BERT and GPT-2 on a GPU or TPU',
}
OF_BENCHES = {
  'store': ('text',),
  'batches': (),
  'step': (),
  'units': (),
  'recipes': (),
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
