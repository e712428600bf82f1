"""Heads of columns as papers print them, and which of their values is best."""

# Name of a column's task -> the papers' name; _dev and _test may follow.
TASKS = {
  'books': 'Books',
  'chnsenticorp': 'ChnSentiCorp',
  'cola': 'CoLA',
  'conll_de': 'German',
  'conll_es': 'Spanish',
  'conll_nl': 'Dutch',
  'coref_gum': 'Coref (GUM)',
  'coref_ontonotes': 'Coref',
  'glue': 'GLUE',
  'lcqmc': 'LCQMC',
  'lm': 'LM',
  'mlm': 'LM',
  'mnli': 'MNLI',
  'mnli_matched': 'MNLI-m',
  'mnli_mismatched': 'MNLI-mm',
  'mrpc': 'MRPC',
  'msra_ner': 'MSRA-NER',
  'ner_conll2003': 'NER',
  'ner_conll2003_feature_based': 'NER, features',
  'ner_conll2003_finetuned': 'NER, fine-tuned',
  'nlpcc_dbqa': 'NLPCC-DBQA',
  'one_billion_word': '1B Word',
  'panx_en': 'PAN-X',
  'panx_en_feature_based': 'PAN-X, features',
  'qnli': 'QNLI',
  'qqp': 'QQP',
  'race': 'RACE',
  'race_high': 'RACE-h',
  'race_middle': 'RACE-m',
  'rte': 'RTE',
  'scitail': 'SciTail',
  'snli': 'SNLI',
  'squad1': 'SQuAD 1.1',
  'squad_v1.1': 'SQuAD 1.1',
  'squad_v2': 'SQuAD 2.0',
  'srl_ewt': 'SRL (EWT)',
  'srl_ontonotes': 'SRL',
  'sst2': 'SST-2',
  'sst5': 'SST-5',
  'story_cloze': 'Story Cloze',
  'stsb': 'STS-B',
  'swag': 'SWAG',
  'wnli': 'WNLI',
  'xnli': 'XNLI',
}
METRICS = {
  'accuracy': 'acc',
  'average_f1': 'avg. F1',
  'avg_f1': 'avg. F1',
  'em': 'EM',
  'f1': 'F1',
  'matthews': 'mc',
  'mrr': 'MRR',
  'pearson': 'pc',
  'ppl': 'ppl',
  'score': 'score',
  'spearman': 'sc',
  'token_ppl': 'token ppl',
}
LOW, HIGH = 'low', 'high'
# Columns of no metric, but means.
_MEANS = ('average',)


def head_of(name: str) -> str:
  """Returns the head of a column TASK/METRIC; of others their name."""
  task, _, metric = name.partition('/')
  if not metric:
    return name[:1].upper() + name[1:]
  split = ''
  for ending in ('_dev', '_test'):
    if task.endswith(ending) and task not in TASKS:
      task, split = task.removesuffix(ending), f' {ending[1:]}'
  if task.startswith('xnli_'):
    shown = f'XNLI {task.removeprefix("xnli_")}'
  else:
    shown = TASKS.get(task, task)
  metric, _, part = metric.partition('/')
  said = METRICS.get(metric, metric) + (f', {part}' if part else '')
  return f'{shown}{split} ({said})'


def best_of(name: str) -> str:
  """Returns which value of a column is best: `LOW`, `HIGH`, or '' for none."""
  _, _, metric = name.partition('/')
  metric = metric.partition('/')[0]
  if metric.endswith('ppl'):
    return LOW
  return HIGH if metric in METRICS or name in _MEANS else ''
