"""Surprise of tokens: the sums of other commands, and the page."""

import functools
import json
import math

import browser
import numpy as np
import pytest
import runs
import small_published
from elmo_store import build_words, small_elmo_config, write_topics
from plain_pages import HOSTILE, open_page, texts

from data.vocabulary import tokenization
from train import generate, score
from train.language import sentence_sums, surprise
from train.vectors.trained_model import TrainedModel

TEXT = 'The function returns a value.\nNaïve <b> classes 🏦 are objects.'
LINES = TEXT.split('\n')


@pytest.fixture(scope='module')
def folders(small_store, tmp_path_factory):
  """Small models of each kind: name -> folder."""
  folder = tmp_path_factory.mktemp('models')
  small_published.write_bert(
    folder / 'bert', tokenization.load(small_store), initializer_range=0.3
  )
  topics = write_topics(folder, 0, 20)
  lines = topics.read_text().split('\n')
  for name, kind in (('gpt', 'bpe'), ('gpt2', 'bytebpe')):
    tokenizer = tokenization.train(
      lines, tokenization.parse_training(f'train:{kind}:400')
    )
    small_published.write_gpt(folder / name, tokenizer, initializer_range=0.3)
  return folder


@pytest.fixture(scope='module')
def elmo(tmp_path_factory):
  """The workdir of a small ELMo of whole words."""
  folder = tmp_path_factory.mktemp('elmo')
  store = build_words(write_topics(folder, 0, 20), folder / 'store')
  with pytest.MonkeyPatch.context() as patch:
    runs.see_one_device(patch)
    config = small_elmo_config(
      store, **{'train.phases': ((2, 8, 4, 'continue'),)}
    )
    runs.train(config, folder / 'run')
  return folder / 'run'


@pytest.fixture(scope='module')
def driver():
  with browser.chromium() as driver:
    yield driver


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, score)


def check_readings(figures, top):
  """Each token's probability is there again where it is among the likeliest."""
  for reading in figures['readings']:
    scored = [x for x in reading['tokens'] if x['log_prob'] is not None]
    mean = -sum(x['log_prob'] for x in scored) / len(scored)
    assert reading['perplexity'] == pytest.approx(math.exp(mean))
    for token in scored:
      chances = [x['probability'] for x in token['likeliest']]
      assert len(chances) == top and chances == sorted(chances)[::-1]
      own = math.exp(token['log_prob'])
      assert own <= chances[0] + 1e-6
      named = {x['piece']: x['probability'] for x in token['likeliest']}
      if token['piece'] in named and token['piece'] != '<UNK>':
        assert named[token['piece']] == pytest.approx(own, rel=1e-4)


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_a_gpt_has_the_sums_of_its_text(name, folders, run, tmp_path):
  (tmp_path / 'a.txt').write_text(TEXT)
  given = [folders / name, 'a.txt', '--context=8', '--stride=3', '--json']
  plain = json.loads(run(*given).out)
  shown = json.loads(run(*given, '--out', 'a.html', '--top=7').out)
  assert plain == {key: shown[key] for key in plain}
  check_readings(shown, 7)
  (reading,) = shown['readings']
  assert len(reading['tokens']) == plain['tokens']
  assert reading['perplexity'] == pytest.approx(plain['perplexity'], rel=1e-5)
  assert reading['tokens'][0]['log_prob'] is None
  assert (tmp_path / 'a.html').read_text().count('class="token"') == (
    plain['tokens']
  )


def test_a_bert_has_its_pseudo_log_likelihood(folders, run):
  shown = json.loads(
    run(folders / 'bert', '--text', TEXT, '--json', '--out', 'a.html').out
  )
  sums, counts = sentence_sums.score(
    TrainedModel(folders / 'bert', use=None), LINES
  )
  check_readings(shown, 5)
  of_lines = [
    sum(x['log_prob'] for x in reading['tokens'])
    for reading in shown['readings']
  ]
  np.testing.assert_allclose(of_lines, sums, rtol=1e-5)
  assert shown['pseudo_tokens'] == counts.sum()
  assert shown['pseudo_nats'] == pytest.approx(-sums.sum(), rel=1e-5)
  whole = math.exp(-sums.sum() / counts.sum())
  assert shown['pseudo_perplexity'] == pytest.approx(whole, rel=1e-4)


def test_an_elmo_has_both_directions(elmo, run):
  shown = json.loads(run(elmo, '--text', TEXT, '--json', '--out', 'a.html').out)
  sums, _ = sentence_sums.score(TrainedModel(elmo, use=None), LINES)
  check_readings(shown, 5)
  ways = [reading['reading'] for reading in shown['readings']]
  assert ways == ['from left to right', 'from right to left'] * 2
  for number, expected in enumerate(sums):
    pair = shown['readings'][2 * number : 2 * number + 2]
    assert pair[0]['tokens'][0]['piece'] == LINES[number].split()[0]
    found = sum(x['log_prob'] for each in pair for x in each['tokens'])
    assert found == pytest.approx(expected, rel=1e-5)
  of_words = shown['forward_nats'] + shown['backward_nats']
  assert of_words == pytest.approx(-sums.sum(), rel=1e-5)


@pytest.mark.parametrize('name', ['bert', 'elmo'])
def test_without_a_page_lines_are_scored_together(name, folders, elmo, run):
  weights = elmo if name == 'elmo' else folders / name
  page = json.loads(
    run(weights, '--text', TEXT, '--json', '--out', 'a.html').out
  )
  figures = json.loads(run(weights, '--text', TEXT, '--json').out)
  del page['readings']
  assert page.pop('scoring') == figures.pop('scoring')
  assert page == pytest.approx(figures, rel=1e-5)


def test_lines_of_many_lengths_have_few_programs(folders):
  found = TrainedModel(folders / 'bert', use=None)
  lines = [' '.join(['the'] * n) for n in range(33, 49)]
  before = surprise._masked._cache_size()
  readings = list(surprise.read_lines(found, lines, top=2))
  assert [len(each.tokens) for each in readings] == [*range(33, 49)]
  assert surprise._masked._cache_size() - before <= 9


def test_a_table_has_the_likeliest_at_each_step(folders, run_command):
  run = functools.partial(run_command, generate, folders / 'gpt2')
  given = ['--prompt', 'The function', '--max_new_tokens', '6', '--table', '3']
  greedy = json.loads(run(*given, '--temperature', '0', '--json').out)
  assert [x['piece'] for x in greedy['table']] == [
    x['likeliest'][0]['piece'] for x in greedy['table']
  ]
  pieces = tokenization.load(folders / 'gpt2').pieces
  assert [pieces[i] for i in greedy['tokens']] == [
    x['piece'] for x in greedy['table']
  ]
  lines = run(*given, '--temperature', '0').out.splitlines()
  assert lines[-7].split()[:3] == ['step', 'written', 'likeliest']
  for line, row in zip(lines[-6:], greedy['table'], strict=True):
    chance = f'{row["likeliest"][2]["probability"]:.4f}'
    assert line.split()[-2:] == [row['likeliest'][2]['piece'], chance]
  two = run(*given, '--samples', '2', '--json').out.splitlines()
  assert [len(json.loads(line)['table']) for line in two] == [6, 6]
  with pytest.raises(SystemExit, match='--table=900: expected 400 at most'):
    run(*given[:-1], '900')


def test_what_is_refused(folders, small_bert, small_elmo_folder, run, tmp_path):
  for arguments, message in (
    ([small_bert, '--text', 'a'], r'no head for masked pieces \(mlm\), found'),
    ([small_elmo_folder, '--text', 'a'], 'without a vocabulary, whose softmax'),
    ([folders / 'bert', '--text', 'a ' * 70], 'has 72 pieces with the symbols'),
    ([folders / 'bert', '--text', ' '], '--text is empty, expected a text'),
    (
      [folders / 'bert', '--text', 'a', '--context', '3'],
      'holds a bert, expected gpt or gpt2',
    ),
    (['W', '--text', 'a', '--out', 'a.png'], 'ends in .html'),
  ):
    with pytest.raises(SystemExit, match=message):
      run(*arguments)
  with pytest.raises(ValueError, match='found 5,001 tokens, expected 5,000'):
    surprise.check_size('a.html', 5001)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('name', HOSTILE)
def test_pages_hold_texts_as_they_are(name, driver, folders, run, tmp_path):
  text = HOSTILE[name]
  page = tmp_path / 'a.html'
  out = run(folders / 'gpt2', '--text', text, '--out', page, '--json').out
  open_page(driver, page)
  (reading,) = json.loads(out)['readings']
  tokens = reading['tokens']
  assert texts(driver, '.piece') == [token['piece'] for token in tokens]
  (title,) = texts(driver, 'h2')
  assert title.endswith(f'perplexity {reading["perplexity"]:,.2f}')
  said = texts(driver, '.likely b')
  for line, token in zip(said, tokens[1:], strict=True):
    bits = -token['log_prob'] / math.log(2)
    probability = math.exp(token['log_prob'])
    assert line == f'probability {probability:.4f}, surprise {bits:.2f} bits'
  cells = texts(driver, '.likely td')
  assert cells == [
    cell
    for token in tokens
    for each in token['likeliest']
    for cell in (f'{each["probability"]:.4f}', each['piece'])
  ]


def test_the_likeliest_show_where_a_token_is_pointed_at(
  driver, folders, run, tmp_path
):
  from selenium.webdriver.common.action_chains import ActionChains
  from selenium.webdriver.common.by import By
  from selenium.webdriver.common.keys import Keys

  run(folders / 'bert', '--text', LINES[0], '--out', 'a.html')
  open_page(driver, tmp_path / 'a.html')

  def shown():
    boxes = driver.find_elements(By.CSS_SELECTOR, '.likely')
    return [place for place, box in enumerate(boxes) if box.is_displayed()]

  assert not shown()
  tokens = driver.find_elements(By.CSS_SELECTOR, '.token')
  ActionChains(driver).move_to_element(tokens[2]).perform()
  assert shown() == [2]
  ActionChains(driver).move_by_offset(0, 300).send_keys(Keys.TAB).perform()
  assert len(shown()) == 1
