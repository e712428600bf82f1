"""Examples are checked whatever their source."""

import dataclasses

import pytest
import scored_cases

from data.tasks import examples, registry


def load(folder, name, split, text, file='train.tsv'):
  path = folder / file
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return registry.load(registry.find(name), str(folder), split)


RTE = 'index\tsentence1\tsentence2\tlabel\n'


def test_the_place_of_both_duplicates_is_told(tmp_path):
  text = RTE + '7\tA.\tB.\tentailment\n7\tC.\tD.\tentailment\n'
  file = tmp_path / 'train.tsv'
  with pytest.raises(ValueError) as error:
    load(tmp_path, 'rte', 'train', text)
  assert str(error.value) == (
    f"{file}, line 3: found the id '7' of {file}, line 2 again, expected a "
    'different id for each example'
  )


@pytest.mark.parametrize(
  'limits, example, message',
  [
    (
      {'kind': 'classification', 'num_texts': 2},
      examples.TextExample('0', ('a',), None),
      'found 1 texts, expected 2',
    ),
    (
      {'kind': 'choice', 'num_choices': 3},
      examples.ChoiceExample('0', 'a', '', ('b', 'c'), None),
      'found 2 choices, expected 3',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', 'a', '', ('b',), None),
      'found 1 choices, expected 2 or more',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', 'a', '', ('b', ' '), None),
      'found an empty choice 2 of 2, expected words',
    ),
    (
      {'kind': 'choice', 'allow_empty': True},
      examples.ChoiceExample('0', 'a', '', ('', ' '), None),
      'found an empty choice 1 of 2, expected words',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', '', ' ', ('b', 'c'), None),
      'found neither context nor question, expected words',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', 'a', '', ('b', 'c'), 2),
      'found 2 as the right choice, expected 0 to 1',
    ),
    (
      {'kind': 'tagging'},
      examples.TaggedExample('0', (), None),
      'found an empty sentence, expected words',
    ),
    (
      {'kind': 'tagging'},
      examples.TaggedExample('0', ('a', ' '), None),
      "found the word ' ', expected a word",
    ),
    (
      {'kind': 'tagging', 'labels': ('O',)},
      examples.TaggedExample('0', ('a', 'b'), ('O',)),
      'found 1 tags, expected one for each of 2 words',
    ),
    *(
      ({'kind': 'coreference'}, examples.DocumentExample('0', *fields), message)
      for fields, message in [
        (
          ((('a',), ()), (('',), ()), '', None),
          'found sentences of [1, 0] words, expected words in each',
        ),
        (
          ((('a', 'b'),), (('',),), '', None),
          'found speakers of other numbers than words, expected one a word',
        ),
        (
          ((('a', ' '),), (('', ''),), '', ()),
          "found the word ' ', expected a word",
        ),
        (
          ((('a', 'b'),), (('', ''),), '', (((0, 1),),)),
          'found the cluster ((0, 1),), expected two mentions or more',
        ),
        (
          ((('a', 'b'),), (('', ''),), '', (((0, 1), (1, 2)),)),
          'found the mention (1, 2), expected its first and last word of 2, '
          'from 0',
        ),
        (
          ((('a',), ('b',)), (('',), ('',)), '', (((0, 0), (0, 1)),)),
          'found the mention (0, 1), expected words of one sentence',
        ),
        (
          ((('a', 'b'),), (('', ''),), '', 2 * (((0, 0), (1, 1)),)),
          'found the mention (0, 0) twice, expected it in one cluster',
        ),
      ]
    ),
  ],
)
def test_whatever_the_source_examples_are_checked(limits, example, message):
  with pytest.raises(ValueError) as error:
    task = scored_cases.task(**limits)
    task.gather([('record 5', example)], 'test', 'here')
  assert str(error.value) == f'record 5: {message}'


def test_a_task_has_few_fields():
  assert len(dataclasses.fields(examples.Task)) <= 16
