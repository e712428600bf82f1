r"""What the modern recipe gives a GPT of 4 layers of 256 for its minutes.

The recipe of 2018 reads 10 M tokens. The modern one has half of its minutes on
one core. A step of it takes 1.32 times as long, by the longer of two timings;
the other has 1.13 (results/bench_recipes_cpu.json).

  python -m train.tables --table small/modern_gpt_mini --data sets
"""

from configs.tables import base, small
from configs.tables.base import Column, Contrast

OLD, HALF = '2018', 'modern, half of the minutes'
PERPLEXITY = Column('lm/ppl', percent=False, held_out='lm')
STEPS = 2_441  # of 4,096 tokens
OF_STEP = 1.32  # seconds of a modern step over those of one of 2018's
# All held-out windows are scored, and only of the last model.
SCORED = {'eval.max_windows': 4_000, 'train.eval_every': 1_000_000}


def _row(name: str, config: str, minutes: float) -> base.Row:
  changes = SCORED | {'train.steps': round(STEPS * minutes)}
  return small.row(name, ('',) * 2, config, family='gpt', changes=changes)


TABLE = base.Table(
  id='small/modern_gpt_mini',
  title='A modern GPT beside that of 2018, in half of its minutes',
  source='ours; no published figures',
  columns=(PERPLEXITY, small.BLIMP),
  maker='small_table',
  pretrainings=3,
  notes=(
    'Every row is pre-trained by this table on the same books and articles of'
    ' Wikipedia (WikiText-2), and none is fine-tuned.',
    *small.NOTES[2:],
    'The perplexity is that of all held-out text, in windows of 256 tokens.',
    f'A step of the modern recipe takes {OF_STEP} times as long as one of'
    " 2018's, on one core, both taken in turns (`python -m train.bench"
    ' recipes`): its number of steps follows from that. Another timing has'
    ' 1.13.',
  ),
  contrasts=(
    Contrast('The modern recipe learns more in half of the minutes', HALF, OLD),
  ),
  rows=(
    _row(OLD, 'gpt_mini', 1.0),
    _row(HALF, 'gpt_mini:modern', 1 / 2 / OF_STEP),
  ),
)
