"""ATIS and SNIPS: requests with slots of words, and an intent.

In the files of Goo et al. 2018 (SlotGated-SLU): seq.in has a request a line,
seq.out the tags of its words in IOB2, label its intent.
"""

import itertools
from collections.abc import Iterator, Sequence

from etils import epath

from data.tasks import examples, files
from data.tasks.annotated import conll
from data.vocabulary import tag_schemes

# All that occur in one of the three splits.
_ATIS_SLOTS = """
aircraft_code airline_code airline_name airport_code airport_name
arrive_date.date_relative arrive_date.day_name arrive_date.day_number
arrive_date.month_name arrive_date.today_relative arrive_time.end_time
arrive_time.period_mod arrive_time.period_of_day arrive_time.start_time
arrive_time.time arrive_time.time_relative booking_class city_name class_type
compartment connect cost_relative day_name day_number days_code
depart_date.date_relative depart_date.day_name depart_date.day_number
depart_date.month_name depart_date.today_relative depart_date.year
depart_time.end_time depart_time.period_mod depart_time.period_of_day
depart_time.start_time depart_time.time depart_time.time_relative economy
fare_amount fare_basis_code flight flight_days flight_mod flight_number
flight_stop flight_time fromloc.airport_code fromloc.airport_name
fromloc.city_name fromloc.state_code fromloc.state_name meal meal_code
meal_description mod month_name or period_of_day restriction_code
return_date.date_relative return_date.day_name return_date.day_number
return_date.month_name return_date.today_relative return_time.period_mod
return_time.period_of_day round_trip state_code state_name
stoploc.airport_code stoploc.airport_name stoploc.city_name stoploc.state_code
time time_relative today_relative toloc.airport_code toloc.airport_name
toloc.city_name toloc.country_name toloc.state_code toloc.state_name
transport_type
"""
_SNIPS_SLOTS = """
album artist best_rating city condition_description condition_temperature
country cuisine current_location entity_name facility genre geographic_poi
location_name movie_name movie_type music_item object_location_type object_name
object_part_of_series_type object_select object_type party_size_description
party_size_number playlist playlist_owner poi rating_unit rating_value
restaurant_name restaurant_type served_dish service sort spatial_relation state
timeRange track year
"""
# A request with several intents has them joined by #, a class of its own.
_ATIS_INTENTS = """
atis_abbreviation atis_aircraft atis_aircraft#atis_flight#atis_flight_no
atis_airfare atis_airfare#atis_flight atis_airfare#atis_flight_time
atis_airline atis_airline#atis_flight_no atis_airport atis_capacity
atis_cheapest atis_city atis_day_name atis_distance atis_flight
atis_flight#atis_airfare atis_flight#atis_airline atis_flight_no
atis_flight_no#atis_airline atis_flight_time atis_ground_fare
atis_ground_service atis_ground_service#atis_ground_fare atis_meal
atis_quantity atis_restriction
"""
_SNIPS_INTENTS = """
AddToPlaylist BookRestaurant GetWeather PlayMusic RateBook SearchCreativeWork
SearchScreeningEvent
"""


def _lines(
  file: epath.Path, split: str, name: str
) -> Iterator[tuple[str, list[str], list[str] | None]]:
  """Yields (place, words, parts of the line of `name` beside the file).

  A split without labels need not have the file of labels: its parts are None.
  """
  beside = file.parent / name
  labels = itertools.repeat((0, None))
  if beside.exists() or examples.needs_labels(split):
    labels = files.read_lines(beside)
  labels = iter(labels)
  for number, text in files.read_lines(file):
    _, label = next(labels, (0, ''))
    if not (text or label):
      continue
    parts = None if label is None else label.split()
    if parts == []:
      raise ValueError(
        f'{beside}, line {number:,}: found nothing, expected the labels of line'
        f' {number:,} of {file.name}: {text[:80]!r}'
      )
    yield f'{file}, line {number:,}', text.split(), parts
  line, label = next(labels, (0, None))
  if label is not None:
    raise ValueError(
      f'{beside}, line {line:,}: found {label[:80]!r}, expected the end: '
      f'{file.name} has {line - 1:,} lines'
    )


def _slot_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields requests with a tag of IOB2 a word."""
  for number, (where, words, tags) in enumerate(_lines(file, split, 'seq.out')):
    tag_schemes.check_iob2(where, tags or ())
    yield (
      where,
      examples.TaggedExample(
        str(number), tuple(words), tags and tuple(tags), document=number
      ),
    )


def _intent_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields requests with their intent."""
  for number, (where, words, intent) in enumerate(_lines(file, split, 'label')):
    label = intent and ' '.join(intent)
    yield where, examples.TextExample(str(number), (' '.join(words),), label)


def _tasks(
  name: str, slots: str, intents: str, sizes: Sequence[int]
) -> tuple[examples.Task, examples.Task]:
  """Returns the tasks of a set's slots and of its intents."""
  title = name.upper()
  common = {
    'files': {
      'train': ('train/seq.in',),
      'dev': ('valid/seq.in',),
      'test': ('test/seq.in',),
    },
    'folders': (name, f'data/{name}', f'slots/{name}'),
    'sizes': dict(zip(('train', 'dev', 'test'), sizes, strict=True)),
    'url': 'https://github.com/MiuLab/SlotGated-SLU',
  }
  return (
    examples.Task(
      rows=_slot_rows,
      name=name,
      title=f'{title}, slots',
      kind='tagging',
      labels=tag_schemes.iob2_labels(slots.split()),
      metrics=conll.ENTITY_METRICS,
      submission='conll',
      **common,
    ),
    examples.TextTask(
      rows=_intent_rows,
      name=f'{name}_intent',
      title=f'{title}, intents',
      kind='classification',
      labels=tuple(intents.split()),
      recipe=examples.SPACES,
      **common,
    ),
  )


TASKS = (
  *_tasks('atis', _ATIS_SLOTS, _ATIS_INTENTS, (4478, 500, 893)),
  *_tasks('snips', _SNIPS_SLOTS, _SNIPS_INTENTS, (13084, 700, 700)),
)
