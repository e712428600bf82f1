"""CoNLL-U: its words and their UPOS tags, small files and the real ones."""

import collections

import pytest

from data.tasks import registry
from data.tasks.annotated import universal

# French au is à and le; the empty node 5.1 repeats a verb.
CONLLU = """# sent_id = 1
# text = Il va au parc.
1\tIl\til\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tva\taller\tVERB\t_\t_\t0\troot\t_\t_
3-4\tau\t_\t_\t_\t_\t_\t_\t_\t_
3\tà\tà\tADP\t_\t_\t5\tcase\t_\t_
4\tle\tle\tDET\t_\t_\t5\tdet\t_\t_
5\tparc\tparc\tNOUN\t_\t_\t2\tobl\t_\t_
5.1\tva\taller\tVERB\t_\t_\t_\t_\t_\t_
6\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_

1\t1 000\t1 000\tNUM\t_\t_\t0\troot\t_\t_
"""
# Words as in the data set's README, which counts joined words beside them.
PUD = {
  'en': (21309, 129),
  'de': (21663, 331),
  'es': (23750, 467),
  'fr': (25321, 595),
  'zh': (21415, 0),
  'ru': (19355, 0),
  'ar': (20747, 0),
  'hi': (23829, 0),
  'tr': (17227, 346),
  'fi': (15819, 6),
  'ko': (16584, 0),
}


def read(folder, text):
  (folder / 'dev.conllu').write_text(text)
  return registry.load(registry.find('ud_pos'), str(folder), 'dev')


def test_words_are_the_syntactic_ones(tmp_path):
  first, second = read(tmp_path, CONLLU)
  assert first.words == ('Il', 'va', 'à', 'le', 'parc', '.')
  assert first.tags == ('PRON', 'VERB', 'ADP', 'DET', 'NOUN', 'PUNCT')
  assert (second.id, second.words, second.tags) == ('1', ('1 000',), ('NUM',))
  assert registry.find('ud_pos').metrics == ('accuracy',)


@pytest.mark.parametrize(
  ('old', 'new', 'message'),
  [
    (
      '\n6\t',
      '\n7\t',
      'line 10: found the word 7, expected the word 6, joined',
    ),
    ('3-4\t', '3+4\t', r'line 5: found the word 3\+4, expected the word 3'),
    ('3-4\t', '3-\t', 'line 5: found the word 3-, expected the word 3'),
    ('NOUN', 'N', "line 3: found the tag 'N', expected one of .'ADJ', 'ADP'"),
    ('NUM', '_', 'line 12: found no label, expected one'),
    ('1\t1 000', '1-2\t1 000', 'line 12: found a sentence without any word'),
    (
      '\tVERB\t_\t_\t0',
      ' VERB _\t_\t0',
      'line 4: found 8 columns, expected 10',
    ),
  ],
)
def test_wrong_lines_are_named(tmp_path, old, new, message):
  assert old in CONLLU
  with pytest.raises(ValueError, match=rf'dev\.conllu, {message}'):
    read(tmp_path, CONLLU.replace(old, new, 1))


@pytest.mark.parametrize('language', PUD)
def test_parallel_ud_as_counted_by_hand(sesame_data, language):
  file = sesame_data / 'pud' / f'{language}_pud-ud-test.conllu'
  counted, joined, words = collections.Counter(), 0, []
  for line in file.read_text().split('\n'):
    fields = line.split('\t')
    if fields[0].isdigit():
      counted[fields[3]] += 1
      words.append(fields[1])
    elif len(fields) == 10 and '.' not in fields[0]:
      joined += 1
  assert (len(words) + joined, joined) == PUD[language]
  split = 'test_pud' if language == 'en' else f'test@{language}'
  found = registry.load(registry.find('ud_pos'), str(sesame_data), split)
  assert len(found) == 1000
  assert [word for each in found for word in each.words] == words
  tags = collections.Counter(tag for each in found for tag in each.tags)
  assert tags == counted and set(tags) <= set(universal.UPOS)
