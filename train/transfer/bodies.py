"""Chooses the program of a config: a language model, or an ELMo task model."""

import ml_collections

from data.by_name import ByName
from train.transfer import encoders
from train.transfer.program import TaskProgram

# ELMo's task models: name -> program, imported when it is looked up.
BODIES = ByName(
  {
    'bcn': 'train.transfer.word_bodies:Bcn',
    'esim': 'train.transfer.word_bodies:Esim',
    'bilstm_crf': 'train.transfer.word_bodies:BilstmCrf',
    'bilstm_attention': 'train.transfer.word_bodies:BilstmAttention',
    'deep_srl': 'train.transfer.word_bodies:DeepSrl',
    'e2e_coref': 'train.transfer.word_bodies:EndToEndCoref',
    'bidaf_plus': 'train.transfer.word_bodies:BidafPlus',
    'bidaf': 'train.transfer.word_bodies:Bidaf',
  }
)


# Section of a config -> (program) -> the program that learns by it too.
LEARNING = ByName({'distill': 'train.transfer.distillation:student_of'})


def program_of(config: ml_collections.ConfigDict) -> type[TaskProgram]:
  """Returns the class of the programs of a config."""
  name = config.model.name
  found = BODIES[name] if name in BODIES else encoders.EncoderProgram
  for section in filter(config.__contains__, LEARNING):
    found = LEARNING[section](found)
  return found
