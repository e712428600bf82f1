"""README's measured figures are those of the files in results/."""

import functools
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
NUMBER = r'\d+(?:,\d{3})*(?:\.\d+)?'


def measured():
  """Returns the table: what was measured -> our cell, the one beside it."""
  text = (ROOT / 'README.md').read_text().partition('## Measured')[2]
  lines = [line for line in text.splitlines() if line.startswith('| ')]
  rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]
  return {what: (ours, beside) for what, ours, beside in rows[1:]}


@functools.cache
def result(name):
  return json.loads((ROOT / f'results/{name}.json').read_text())


def at(name, path):
  """Returns a value of a file, by keys with spaces between."""
  found = result(name)
  for key in path.split():
    found = found[int(key) if isinstance(found, list) else key]
  return found


def show(name, *paths, digits=0):
  return [f'{at(name, path):.{digits}f}' for path in paths]


def means(table, row, column):
  """Returns the means of a table: ours, and the reference's."""
  for line in (ROOT / f'results/tables/{table}.md').read_text().splitlines():
    cells = [cell.strip() for cell in line.split('|')[1:-1]]
    if cells[:2] == [row, column]:
      theirs, ours = (cell.partition(' ± ')[0] for cell in cells[2:4])
      return [ours], [theirs]
  raise KeyError(row, column)


def both(table, rows, column):
  ours, theirs = zip(*(means(table, row, column) for row in rows), strict=True)
  return sum(ours, []), sum(theirs, [])


def cell(table, *start, column):
  """Returns the mean in the first row of a table that begins so."""
  lines = (ROOT / f'results/tables/{table}.md').read_text().splitlines()
  rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]
  header = next(row for row in rows if column in row)
  found = next(row for row in rows if tuple(row[: len(start)]) == start)
  return found[header.index(column)].partition(' ± ')[0]


def minimal_pairs(table, published):
  """Returns shares of pairs that are right: ours, and others' beside them."""
  place = 'tables/{}/{}_100_novels/sum'
  ours, (ngrams,) = (
    [f'{100 * at(place.format(table, each), "mean"):.1f}' for each in models]
    for models in (('GPT', 'BERT'), ('5-gram',))
  )
  beside = cell(table, *published, column='mean over paradigms')
  return ours, [f'{float(beside):.1f}', ngrams]


def perplexities(name):
  names = ('forward', 'backward', 'unigram')
  *ours, unigram = show(name, *(f'metrics eval/{n}_perplexity' for n in names))
  return ours, [unigram]


def speeds(name, bench, ours, *theirs, digits=1):
  return (
    show(name, f'{bench} {ours}', digits=digits),
    show(name, *(f'{bench} {each}' for each in theirs), digits=digits),
  )


def learned(name):
  """Returns the end of a pre-training by a program and its seconds."""
  file = 'pretraining_bert_cpu'
  seconds = {'ours': 'our_seconds', 'theirs': 'their_seconds'}[name]
  end = f'summary mean_loss_of_last_100_steps {name} 0'
  found = show(file, end, digits=5) + show(file, f'summary {seconds}', digits=3)
  return (found,)


def killed(name):
  assert at(name, 'all_equal')
  return [str(at(name, 'kills'))], []


GLOVE = ('GloVe 50d', 'GloVe + ELMo at both')


def expected():
  """Returns what was measured -> numbers of our cell, and of the other."""
  tuned = functools.partial(means, 'sesame_transfer', 'MiniLM')
  of_elmo = functools.partial(both, 'sesame_elmo', GLOVE)
  novels, cache = 'gpt_mini_novels', 'bench_word_cache_cpu'
  bert = show('bert_tiny', 'mean eval/mlm_perplexity')
  bert += show('bert_tiny', 'mean eval/perplexity_ratio', digits=2)
  bert.append(f'{100 * at("bert_tiny", "mean eval/nsp_accuracy"):.0f}')
  unigram = 'runs 0 metrics eval/unigram_perplexity'
  ratio = 'runs 0 metrics eval/perplexity_ratio'
  modern = show(
    'bert_tiny_modern', 'runs 0 metrics eval/mlm_perplexity', digits=1
  )
  modern += show('bert_tiny_modern', ratio, digits=3)
  brown = functools.partial(cell, 'lm_brown', column='ratio')
  mini = functools.partial(cell, 'small_modern_bert_mini', column='mlm/ppl')
  judges = 'sst2/accuracy', 'stsb/spearman', 'panx_en/f1'
  half = functools.partial(cell, 'small_modern_gpt_mini', column='lm/ppl')
  small = 'network, n = 5, h = 50, m = 60, direct'
  large = 'network, n = 5, h = 300, m = 100'
  baby = 'BabyBERTa, Wikipedia-1', 'pseudo-log-likelihood, summed'
  five = show(novels, 'ngram ngram_perplexity', digits=1)
  five += show(novels, 'ngram order')
  five.append(f'{at(novels, "ngram train_tokens") / 1e6:.1f}')
  gpt = ('metrics eval/perplexity', 'metrics eval/unigram_perplexity')
  step, embedding = 'dropout_{}_seconds', '{}_sentences_per_second'
  return {
    'bert_tiny:modern, held-out perplexity, masked tokens': (
      modern,
      show('bert_tiny_modern', unigram),
    ),
    'bert_tiny, the recipe of 2018, the same minutes (2 seeds)': (
      bert,
      show('bert_tiny', unigram),
    ),
    'bert_mini:modern on novels, the same minutes, masked tokens (3 seeds)': (
      [mini('modern, the same minutes (ours)')],
      [mini('2018 (ours)'), '10'],
    ),
    'the same in a third of the minutes (3 seeds)': (
      [mini('modern, a third of the minutes (ours)')],
      [mini('2018 (ours)')],
    ),
    'the same minutes, fine-tuned on SST-2, STS-B and PAN-X': tuple(
      [mini(row, column=column) for column in judges]
      for row in ('modern, the same minutes (ours)', '2018 (ours)')
    ),
    'the same minutes, pairs of BLiMP right, %': tuple(
      [mini(row, column='blimp')]
      for row in ('modern, the same minutes (ours)', '2018 (ours)')
    ),
    'gpt_tiny, held-out perplexity': tuple(
      show('gpt_tiny', path) for path in gpt
    ),
    'gpt_tiny:modern, the same minutes': (
      show('gpt_tiny_modern', 'runs 0 metrics eval/perplexity', digits=1),
      show('gpt_tiny', gpt[0]),
    ),
    'gpt_mini:modern on novels and WikiText-2, half of the minutes (3 seeds)': (
      [half('modern, half of the minutes (ours)')],
      [half('2018 (ours)'), '10'],
    ),
    'elmo_tiny, both directions': perplexities('elmo_tiny'),
    'gpt_mini, 6.1 M tokens of novels': (
      show(novels, 'ngram model_perplexity', digits=1),
      five,
    ),
    'elmo_small, 0.77 M words of novels a direction': perplexities(
      'elmo_small_novels'
    ),
    "Brown, test perplexity over Kneser-Ney's of n = 5 (3 seeds): Bengio's"
    ' network of h = 50 and of h = 300, GPT, LSTM, ELMo': (
      [
        brown(f'{row} (ours)')
        for row in (small, large, 'GPT', 'LSTM', 'ELMo, forward')
      ],
      [brown(small)],
    ),
    'BLiMP, pairs right, %: GPT of 14 M words, BERT of 19 M': minimal_pairs(
      'lm_blimp', baby
    ),
    'Zorro, pairs right, %: the same': minimal_pairs('lm_zorro', baby),
    'MRPC F1, fine-tuned MiniLM (5 seeds)': tuned('mrpc/f1'),
    'RTE accuracy (5 seeds)': tuned('rte/accuracy'),
    'CoLA Matthews (5 seeds)': tuned('cola/matthews'),
    'STS-B Spearman (5 seeds)': tuned('stsb/spearman'),
    'SST-2 accuracy, 10,000 examples (5 seeds)': tuned('sst2/accuracy'),
    'PAN-X English F1 (5 seeds)': tuned('panx_en/f1'),
    'SQuAD 1.1 F1, 8,000 examples (2 seeds)': tuned('squad1/f1'),
    'PAN-X English F1, 10,000 examples, BiLSTM-CRF with GloVe (3 seeds)': (
      of_elmo('panx_en/f1')
    ),
    'SciTail accuracy, 5,000 examples, ESIM with GloVe (3 seeds)': of_elmo(
      'scitail/accuracy'
    ),
    'bert_tiny, 2,000 steps from the same parameters on the same rows: loss of'
    ' the last 100': learned('ours') + learned('theirs'),
    'BERT-Base, a training step of 8 x 128': speeds(
      'bench_cpu',
      'step',
      step.format('ours'),
      step.format('hugging_face'),
      digits=2,
    ),
    'GPT-2, a training step of 4 x 256': speeds(
      'bench_gpt2_step_cpu',
      'gpt2_step',
      'ours_seconds',
      'hugging_face_seconds',
      digits=2,
    ),
    'GPT-2, greedy decoding of one text': speeds(
      'bench_gpt2_decoding_cpu',
      'decoding',
      'batch_1_ours_tokens_per_second',
      'batch_1_hugging_face_tokens_per_second',
    ),
    'ELMo, a training step of 8 x 20 words a direction': speeds(
      'bench_elmo_step_cpu',
      'elmo_step',
      'ours_seconds',
      'pytorch_seconds',
      digits=2,
    ),
    'ELMo, vectors of sentences': speeds(
      'bench_elmo_embedding_cpu',
      'elmo_embedding',
      embedding.format('ours'),
      embedding.format('pytorch'),
    ),
    'MiniLM, vectors of sentences': speeds(
      'bench_embedding_cpu',
      'embedding',
      embedding.format('ours'),
      embedding.format('plain_loop'),
      embedding.format('equal_padding'),
      digits=0,
    ),
    "elmo_small's vectors of a task's words": (
      [f'{round(at(cache, "word_cache read_words_per_second"), -3):,.0f}'],
      [f'{round(at(cache, "word_cache computed_words_per_second"), -1):,.0f}'],
    ),
    'MiniLM, fine-tuning on MRPC': speeds(
      'bench_finetune_cpu',
      'finetune',
      'ours_examples_per_second',
      'dynamic_examples_per_second',
      'grouped_examples_per_second',
    ),
    '30 runs killed at drawn moments': killed('kills_cpu'),
    'the same on Cloud Storage, with faults': killed('kills_gs'),
  }


def test_readme_shows_what_the_files_hold():
  shown = {
    what: tuple(re.findall(NUMBER, cell) for cell in cells)
    for what, cells in measured().items()
  }
  assert shown == expected()
