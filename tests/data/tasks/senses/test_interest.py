"""The senses of *interest*: the real file, and wrong ones."""

import collections

import pytest

from data.tasks.senses import interest


def test_the_release(sesame_data, capsys):
  found = interest.read(sesame_data / 'interest')
  assert not capsys.readouterr().err
  senses = collections.Counter(each.sense for each in found)
  # As counted by Bruce and Wiebe (1994).
  assert senses == {
    f'interest_{number}': count
    for number, count in enumerate((361, 11, 66, 178, 500, 1252), start=1)
  }
  assert len(found) == 2368
  words = {each.found.words[each.found.place] for each in found}
  assert words == {'interest', 'interests'}
  first = found[0].found
  assert first.words[:3] == ('yields', 'on', 'money-market')
  assert first.words[first.place :] == ('interest', 'rates', '.')


INSTANCE = (
  '<corpus><instance id="i1">{}<context><wf>An</wf>{}<wf>rate</wf></context>'
  '</instance></corpus>'
)
ANSWER, HEAD = '<answer senseid="s"/>', '<head><wf>interest</wf></head>'


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('<corpus>', 'interest.pos: not XML: '),
    ('<corpus/>', 'found no instance'),
    (INSTANCE.format('', HEAD), r'instance i1: found the senses \[\], expect'),
    (INSTANCE.format(ANSWER, HEAD * 2), 'i1: found 2 of 4 words in a head'),
    (INSTANCE.format(ANSWER, '<head/>'), 'i1: found 0 of 2 words in a head'),
    (INSTANCE.format(ANSWER, HEAD + '<wf/>'), 'i1: found an empty word'),
  ],
)
def test_wrong_files_are_named(tmp_path, text, message):
  (tmp_path / 'interest.pos').write_text(text)
  with pytest.raises(ValueError, match=message):
    interest.read(tmp_path)
  with pytest.raises(FileNotFoundError, match='found no interest.pos'):
    interest.read(tmp_path / 'none')
