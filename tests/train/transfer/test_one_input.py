"""One input of the command line is answered as the same line of a file."""

import functools
import json
import shutil

import pytest
from small_tasks import NOUNS, write_jsonl

from data.scoring import kinds
from data.vocabulary import tokenization
from train import predict
from train.transfer import one_input, predictors, task_outputs

pytestmark = pytest.mark.usefixtures('one_device')
# Kind of set -> how an example is given on the command line.
GIVEN = {
  'own pairs': lambda x: [each for t in x.texts for each in ('--text', t)],
  'own scores': lambda x: ['--text', *x.texts],
  'own choices': lambda x: [
    *('--text', x.context, '--question', x.question),
    *(each for choice in x.choices for each in ('--choice', choice)),
  ],
  'own tags': lambda x: ['--words', *x.words],
  'own roles': lambda x: [
    *('--words', *x.words, '--predicate', str(x.predicate + 1)),
  ],
  'own questions': lambda x: ['--question', x.question, '--context', 'a.txt'],
}
FAST = ('own pairs', 'own tags')


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, predict)


@pytest.mark.parametrize(
  'kind',
  [
    pytest.param(kind, marks=[] if kind in FAST else [pytest.mark.slow])
    for kind in GIVEN
  ],
)
def test_the_answer_is_that_of_a_file(kind, run_of, run, tmp_path, capsys):
  config, workdir, _ = run_of(kind)
  capsys.readouterr()
  test = f'{config.data.source}/{config.own.test or "dev.jsonl"}'
  task, split, found = predictors.predict(
    [workdir], lambda task: predictors.read_input(task, test, 'test')
  )
  sizes = [
    sum(map(len, map(str, vars(example).values())))
    for example in split.examples
  ]
  number = min(range(len(sizes)), key=sizes.__getitem__)  # none is cut
  example, expected = split.examples[number], found[number]
  (tmp_path / 'a.txt').write_text(getattr(example, 'context', ''))
  given = [workdir, *GIVEN[kind](example)]
  shown = json.loads(run(*given, '--json', '--top', '50').out)
  record = kinds.KINDS[task.kind].record(expected.answer)
  if task.kind == 'regression':
    assert shown['answer'] == pytest.approx(record, abs=1e-5)
    assert f'{shown["answer"]:.4f}' in run(*given).out
    return
  assert shown['answer'] == record
  chances = expected.probabilities
  likeliest = shown['likeliest']
  if task.kind in ('tagging', 'roles'):
    best = [word[0]['probability'] for word in likeliest]
    assert best == pytest.approx(chances, abs=1e-5)
    for word in likeliest:
      assert sum(x['probability'] for x in word) == pytest.approx(1, abs=1e-5)
  elif task.kind == 'span':
    texts = [(x['answer'], pytest.approx(x['probability'])) for x in likeliest]
    assert texts == list(expected.n_best)
    for each in likeliest:
      if each['answer']:
        end = each['begin'] + len(each['answer'])
        assert example.context[each['begin'] : end] == each['answer']
  else:
    found = sorted(x['probability'] for x in likeliest)
    assert found == pytest.approx(sorted(chances), abs=1e-5)
    assert likeliest[0]['probability'] == max(
      x['probability'] for x in likeliest
    )
  # For people, and the best one alone.
  printed = run(*given, '--top', '1').out
  first = likeliest[0][0] if task.kind in ('tagging', 'roles') else likeliest[0]
  assert f'{first["probability"]:.4f}' in printed
  if task.kind == 'span' and shown['answer']:
    assert f'[[{shown["answer"]}]]' in printed


def test_what_is_refused_before_the_model_is_read(
  run_of, run, tmp_path, monkeypatch
):
  monkeypatch.setattr(task_outputs, 'run_model', None)
  (tmp_path / 'a.txt').write_text('')
  several = tmp_path / 'several'
  several.mkdir()
  (several / 'summary.json').write_text('{"best": {"folder": "seed=2"}}')
  pairs, tags = run_of('own pairs')[1], run_of('own tags')[1]
  for arguments, message in (
    ([pairs, '--text', 'a'], 'found 1 texts, expected 2'),
    ([pairs, '--text', 'a', '--text', ' '], "--text is empty: ' '"),
    (
      [pairs, '--question', 'a', '--context', 'a.txt'],
      'kind classification: expected --text, found --question',
    ),
    ([tags, '--text', 'a'], 'kind tagging: expected --words, found --text'),
    ([tags, '--words', 'a', '--words', 'b'], 'found 2 of --words'),
    ([tags, '--words', 'a', ' '], "found the word ' '"),
    ([tmp_path, '--text', 'a'], 'no workdir, it has no config.json$'),
    ([several, '--text', 'a'], 'several runs, the best of them in .*seed=2$'),
    ([tags, '--context', 'none.txt'], 'none.txt: no such file'),
  ):
    with pytest.raises(SystemExit, match=message):
      run(*arguments)
  for arguments in (
    ['W'],
    ['W', '--text', 'a', '--input', 'b'],
    ['W', '--text', 'a', '--split', 'dev'],
    ['W', '--input', 'a', '--output', 'b', '--top', '3'],
    ['W', '--input', 'a'],
  ):
    with pytest.raises(SystemExit) as ended:
      run(*arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize('kept', ['head', 'tail', 'both'])
def test_a_long_text_is_cut_as_in_a_file(run_of, run, tmp_path, kept):
  _, workdir, _ = run_of('own scores')
  shutil.copytree(workdir, tmp_path / kept)
  with (tmp_path / kept / 'config.json').open('r+') as file:
    text = file.read().replace('"long_text": "head"', f'"long_text": "{kept}"')
    assert f'"long_text": "{kept}"' in text
    file.seek(0)
    file.truncate()
    file.write(text)
  long = ' '.join(f'the {noun} returns a value' for noun in NOUNS * 2)
  write_jsonl(tmp_path / 'long.jsonl', [{'text': long}])
  run(tmp_path / kept, '--input', 'long.jsonl', '--output', 'a.jsonl')
  printed = run(tmp_path / kept, '--text', long, '--json')
  expected = json.loads((tmp_path / 'a.jsonl').read_text())['answer']
  assert json.loads(printed.out)['answer'] == pytest.approx(expected, abs=1e-5)
  # 30 of its tokens have room beside [CLS] and [SEP].
  tokenizer = tokenization.load(str(workdir))
  lost = len(tokenizer.encode_batch([long])[0]) - 30
  assert (
    '1 of 1 examples are longer than the model reads (task.max_length=32,'
    f' task.long_text={kept}): up to {lost} tokens of an example are left out'
  ) in printed.err
  # What is left is what is answered.
  if kept == 'head':
    whole = json.loads(run(workdir, '--text', f'{long} {long}', '--json').out)
    assert whole['answer'] == pytest.approx(expected, abs=1e-5)


def test_a_predicate_is_a_word_or_its_number():
  words = ('the', 'dog', 'saw', 'the', '4')
  for asked, place in (('saw', 2), ('1', 0), ('4', 4)):
    given = one_input.Given(sentences=[words], predicate=asked)
    assert one_input._role(None, given).predicate == place
  for asked in ('the', 'cat', '9', '0'):
    given = one_input.Given(sentences=[words], predicate=asked)
    with pytest.raises(ValueError, match=f'--predicate {asked}: found'):
      one_input._role(None, given)


def test_clusters_and_long_contexts_for_people():
  shown = {
    'kind': 'coreference',
    'sentences': [['Mary', 'left', '.'], ['She', 'ran', '.']],
    'answer': [[[0, 0], [3, 3]]],
  }
  assert list(one_input.as_text(shown)) == [
    'Mary left . She ran .',
    '  1  Mary (1), She (4)',
  ]
  assert list(one_input.as_text(shown | {'answer': []}))[1:] == [
    '  no two mentions of one entity'
  ]
  context = 'a' * 300 + 'b' + 'c' * 300
  marked = one_input._marked(context, 300, 1)
  assert marked == f'...{"a" * 200}[[b]]{"c" * 200}...'
