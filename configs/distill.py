r"""Fine-tuning of a small model that learns from a large one, its teacher.

Hardware: any.

  python -m train.main --config distill:task=mrpc --config.data.source=glue \
    --config.init.teacher=runs/mrpc

init.teacher: the workdir of a finished fine-tuning on the same task, or a
folder of a model with its head that Hugging Face's classes open, such as
`train.weights export` writes.

task, model, recipe: as of `transfer`. Without a model, the student has every
second layer of the teacher (init.layers='every:2'), and what else it has; or
layers of other weights, init.weights. With a model, it begins without
pre-training, with the teacher's vocabulary, unless there are init.weights. One
of ELMo's task models reads words, and learns from the teacher's logits alone
(Tang et al. 2019, "Distilling task-specific knowledge from BERT into simple
neural networks"):

  python -m train.main --config distill:task=sst2,model=bilstm_attention \
    --config.data.source=glue --config.task.word_vectors=glove.txt \
    --config.init.teacher=runs/sst2

The loss is label_weight times that of the labels, and 1 - label_weight times
T^2 times the divergence of the student's probabilities from the teacher's, both
at the temperature T (Hinton et al. 2015, "Distilling the knowledge in a neural
network"). Sanh et al. 2019 (DistilBERT) fine-tune with equal parts and T = 2.
Scores have squared distances, tags one loss a word, spans one for the first and
one for the last token.
"""

import ml_collections

from configs import transfer, variants
from configs.sections import distill as distill_section


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config for 'task=NAME[,recipe=NAME][,model=NAME]'."""
  config = distill_section.of_task(transfer.get_config(arg))
  if config.model.name in variants.WORD_MODELS:
    # Tang et al. 2019, sections 3.2 and 4.3
    config.distill.loss, config.distill.label_weight = 'logits', 0.0
    config.task.crf = ''  # each word's tag alone
  elif 'model=' not in arg:
    config.init.layers = 'every:2'
  return config.lock()
