r"""The papers' arguments, tried by small pre-trainings: a picture of each.

Made of the finished runs of `small/bert_tasks` and the other tables of the
same --out; it starts none:

  python -m train.tables --table small/arguments
"""

from configs.tables import base

TABLE = base.Table(
  id='small/arguments',
  title="The papers' arguments, tried by small pre-trainings",
  source='Devlin et al. 2018, Radford et al. 2018',
  columns=(),
  rows=(),
  notes=(
    'Each picture has the difference of two rows of a table in every column, in'
    ' points of its score (of perplexities in per cent, positive where it is'
    ' lower), with its 95 % interval: to the right of 0 the'
    " argument holds. A cross is the paper's difference, where it has one, of"
    ' models a hundred times larger. An argument *holds* in a column if the'
    ' interval is above 0, is *reversed* if it is below, and else *does not'
    ' show*: at this size and with so few pre-trainings a difference, if there'
    ' is one, cannot be told from chance.',
    'How the rows were made, what was tried before, and the commands of all'
    " runs stand in the tables' own pages.",
  ),
  maker='arguments_page',
)
