r"""A language model on the task's own text: before fine-tuning, and beside it.

Rows are plain fine-tuning; the loss of hidden tokens beside the task's; further
pre-training on the texts of MRPC's training set, then fine-tuning; and both.
With all-MiniLM-L6-v2 (6 layers, width 384; its MLM head is drawn anew), DIR its
folder and GLUE that of the set:

  python -m train.main --config bert_mini --workdir runs/mrpc_text \
    --config.data.source=task:mrpc:GLUE --config.data.tokenizer=DIR \
    --config.init.weights=DIR \
    --config.model.num_layers=6 --config.model.embed_dim=384 \
    --config.model.num_heads=12 --config.model.mlp_dim=1536 \
    --config.model.max_length=512 --config.model.gelu=erf \
    --config.model.dropout_rate=0.1 --config.train.num_epochs=5 \
    --config.train.phases='((1, 96, 32, "continue"),)' \
    --config.optim.learning_rate=1e-4 --config.optim.warmup_steps=50 \
    --config.train.platform=cpu
  python -m train.tables --table sesame/task_text --data GLUE \
    --weights 'fine-tuning=DIR' --weights 'with hidden tokens=DIR' \
    --weights 'after its text=runs/mrpc_text' \
    --weights 'after its text with hidden tokens=runs/mrpc_text'
"""

from configs.tables import base, sesame_transfer
from configs.tables.base import Column, Part, Row

HIDDEN = {'task.lm_weight': 0.1}


def _row(name: str, needs: str, **fields) -> Row:
  return Row(name, ('',) * 2, family='bert', needs=needs, **fields)


ANY = 'any BERT'
FURTHER = "its run on the task's text, with data.source=task:mrpc:FOLDER"
TABLE = base.Table(
  id='sesame/task_text',
  title="Masked tokens of MRPC's own text, before fine-tuning and beside it",
  source='ours; no published figures',
  columns=tuple(
    Column(
      f'mrpc/{metric}',
      (
        Part(
          'mrpc',
          (f'dev/{metric}',),
          ('recipe=stable',),
          sesame_transfer.RECIPE,
        ),
      ),
    )
    for metric in ('f1', 'accuracy')
  ),
  tells=(*base.Table.tells, 'task.lm_weight'),
  rows=(
    _row('fine-tuning', ANY),
    _row('with hidden tokens', ANY, overrides=HIDDEN),
    _row('after its text', FURTHER),
    _row('after its text with hidden tokens', FURTHER, overrides=HIDDEN),
  ),
)
