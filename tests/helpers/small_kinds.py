"""Small sets of every kind, as people write their own and as published.

The tail of many texts is longer than the 32 tokens that a model is given.
"""

import csv
import json
import random

from small_tasks import BAD, GOOD, NOUNS, sentences, write_jsonl

SIZES = {'train': 24, 'dev': 12, 'test': 6}
TYPES = {'function': 'PER', 'class': 'LOC'}


def write(folder, kind):
  """Writes train, dev and test of a kind; returns its overrides."""
  folder.mkdir(parents=True)
  return _WRITERS[kind](folder)


def _pairs(seed, count):
  """Yields (text, text, whether both have the same verb's sense)."""
  found = list(sentences(2 * count, seed))
  for (first, a), (second, b) in zip(found[::2], found[1::2], strict=True):
    yield first, second, a == b


def _own_pairs(folder):
  for seed, (split, count) in enumerate(SIZES.items()):
    rows = ['name\tfirst\tsecond\tsame'] + [
      f'x{i}\t{a}\t{b}\t{"yes" if same else "no"}'
      for i, (a, b, same) in enumerate(_pairs(seed, count))
    ]
    (folder / f'{split}.tsv').write_text('\n'.join(rows) + '\n')
  return {
    'own.kind': 'classification',
    'own.text': ('first', 'second'),
    'own.label': 'same',
    'own.train': 'train.tsv',
    'own.dev': 'dev.tsv',
    'own.test': 'test.tsv',
  }


def _rte(folder):
  for seed, (split, count) in enumerate(SIZES.items()):
    titles = ['index', 'sentence1', 'sentence2', 'label']
    rows = [
      [str(i), a, b, 'entailment' if same else 'not_entailment']
      for i, (a, b, same) in enumerate(_pairs(seed, count))
    ]
    if split == 'test':
      rows = [row[:3] for row in rows]
      titles.pop()
    lines = ['\t'.join(row) for row in [titles, *rows]]
    (folder / f'{split}.tsv').write_text('\n'.join(lines) + '\n')
  return {'task.name': 'rte'}


def _own_scores(folder):
  for seed, (split, count) in enumerate(SIZES.items()):
    write_jsonl(
      folder / f'{split}.jsonl',
      [
        {'text': text, 'score': 0.5 + 4 * (label == 'good') + i % 3 / 4}
        for i, (text, label) in enumerate(sentences(count, seed))
      ],
    )
  return {
    'own.kind': 'regression',
    'own.label': 'score',
    'own.test': 'test.jsonl',
  }


def _tagged(seed, count):
  """Yields (document, words, tags); some have 40 words."""
  chance = random.Random(seed)
  for i in range(count):
    words = chance.choices([*NOUNS, *GOOD, *BAD], k=40 if i % 5 == 0 else 7)
    tags = []
    for word in words:
      kind = TYPES.get(word)
      inside = tags and tags[-1][1:] == f'-{kind}'
      tags.append(f'{"I" if inside else "B"}-{kind}' if kind else 'O')
    yield i // 3, words, tags


def _own_tags(folder):
  for seed, (split, count) in enumerate(SIZES.items()):
    write_jsonl(
      folder / f'{split}.jsonl',
      [
        {'words': words, 'tags': tags}
        for _, words, tags in _tagged(seed, count)
      ],
    )
  return {'own.kind': 'tagging', 'own.test': 'test.jsonl'}


def _conll(folder):
  for seed, (name, count) in enumerate(
    zip(('eng.train', 'eng.testa', 'eng.testb'), SIZES.values(), strict=True)
  ):
    lines, before = [], None
    for document, words, tags in _tagged(seed, count):
      if document != before:
        lines += ['-DOCSTART- -X- -X- O', '']
      before = document
      lines += [
        f'{word} NN I-NP {tag}' for word, tag in zip(words, tags, strict=True)
      ]
      lines.append('')
    (folder / name).write_text('\n'.join(lines) + '\n')
  return {'task.name': 'conll2003', 'task.document_context': True}


def _choices(seed, count, num_choices):
  """Yields (context, beginning, endings, the right one's number)."""
  chance = random.Random(seed)
  for _ in range(count):
    verb = chance.choice([*GOOD, *BAD])
    endings = [f'{word} a {chance.choice(NOUNS)}' for word in NOUNS[:4]]
    endings = endings[:num_choices]
    right = chance.randrange(num_choices)
    endings[right] = f'{verb} a {chance.choice(NOUNS)}'
    yield f'the {chance.choice(NOUNS)} {verb}', 'it', endings, right


def _own_choices(folder):
  for seed, (split, count) in enumerate(SIZES.items()):
    write_jsonl(
      folder / f'{split}.jsonl',
      [
        {'context': a, 'question': b, 'choices': endings, 'label': right}
        for a, b, endings, right in _choices(seed, count, 2)
      ],
    )
  return {'own.kind': 'choice', 'own.test': 'test.jsonl'}


def _swag(folder):
  titles = ['', 'video-id', 'fold-ind', 'startphrase', 'sent1', 'sent2']
  titles += ['gold-source', *(f'ending{i}' for i in range(4)), 'label']
  for seed, (name, count) in enumerate(
    zip(('train', 'val', 'test'), SIZES.values(), strict=True)
  ):
    with (folder / f'{name}.csv').open('w', newline='') as file:
      table = csv.writer(file)
      table.writerow(titles if name != 'test' else titles[:-1])
      for i, (a, b, endings, right) in enumerate(_choices(seed, count, 4)):
        row = [i, 'v', i, f'{a} {b}', a, b, 'gold', *endings, right]
        table.writerow(row if name != 'test' else row[:-1])
  return {'task.name': 'swag'}


def _questions(seed, count, answerable):
  chance = random.Random(seed)
  for i in range(count):
    words = chance.choices([*NOUNS, *GOOD], k=60)
    place = chance.randrange(50)
    context = ' '.join(words)
    start = len(' '.join(words[:place])) + bool(place)
    answer = {'text': words[place], 'answer_start': start}
    has_none = i % 3 == 1 and not answerable
    yield f'what {words[place]}?', context, [] if has_none else [answer]


def _own_questions(folder):
  for seed, (split, count) in enumerate(SIZES.items()):
    write_jsonl(
      folder / f'{split}.jsonl',
      [
        {'question': question, 'context': context, 'answers': answers}
        for question, context, answers in _questions(seed, count, True)
      ],
    )
  return {'own.kind': 'span', 'task.doc_stride': 8}


def _squad2(folder):
  for seed, split in enumerate(('train', 'dev')):
    paragraphs = [
      {
        'context': context,
        'qas': [
          {
            'id': f'{split}-{i}',
            'question': question,
            'answers': answers,
            'is_impossible': not answers,
          }
        ],
      }
      for i, (question, context, answers) in enumerate(
        _questions(seed, SIZES[split], False)
      )
    ]
    data = [{'title': 'A', 'paragraphs': paragraphs}]
    (folder / f'{split}-v2.0.json').write_text(
      json.dumps({'version': 'v2.0', 'data': data})
    )
  return {'task.name': 'squad2', 'task.doc_stride': 8}


def _own_roles(folder):
  """In the columns of the English Web Treebank: two predicates a sentence.

  ARG0 is the word before a predicate, ARG1 the one behind it.
  """
  for seed, (split, count) in enumerate(SIZES.items()):
    chance, lines = random.Random(seed), []
    for number in range(count):
      nouns = chance.choices(NOUNS, k=4)
      verbs = chance.choices([*GOOD, *BAD], k=2)
      words = [nouns[0], verbs[0], nouns[1], 'and', nouns[2], verbs[1]]
      words.append(nouns[3])
      for i, word in enumerate(words):
        roles = [
          {-1: '(ARG0*)', 0: '(V*)', 1: '(ARG1*)'}.get(i - place, '*')
          for place in (1, 5)
        ]
        sense = (word, f'{word}.01') if i in (1, 5) else ('-', '-')
        line = ('a', number, i, word, 'VB' if i in (1, 5) else 'NN', '*')
        lines.append('\t'.join(map(str, (*line, *sense, *roles))))
      lines.append('')
    (folder / f'{split}.gold_conll').write_text('\n'.join(lines) + '\n')
  return {
    'own.kind': 'roles',
    'own.train': 'train.gold_conll',
    'own.dev': 'dev.gold_conll',
    'own.test': 'test.gold_conll',
  }


def _own_documents(folder):
  """In CoNLL-2012's columns: the same word is the same thing."""
  for seed, (split, count) in enumerate(SIZES.items()):
    chance, lines = random.Random(seed), []
    for number in range(count):
      lines.append(f'#begin document (nw/{split}{number}); part 000')
      words = chance.choices(NOUNS, k=4 * (2 + number % 3))
      for i, word in enumerate(words):
        cluster = NOUNS.index(word) if words.count(word) > 1 else None
        mention = '-' if cluster is None else f'({cluster})'
        speaker = ('Ann', 'Bo')[i // 4 % 2]
        line = (f'nw/{split}{number}', 0, i % 4, word, 'NN', '*', '-', '-')
        lines.append('\t'.join(map(str, (*line, '-', speaker, '*', mention))))
        if i % 4 == 3:
          lines.append('')
      lines.append('#end document')
    (folder / f'{split}.gold_conll').write_text('\n'.join(lines) + '\n')
  return {
    'own.kind': 'coreference',
    'own.train': 'train.gold_conll',
    'own.dev': 'dev.gold_conll',
    'own.test': 'test.gold_conll',
  }


_WRITERS = {
  'own pairs': _own_pairs,
  'rte': _rte,
  'own scores': _own_scores,
  'own tags': _own_tags,
  'conll2003': _conll,
  'own choices': _own_choices,
  'swag': _swag,
  'own questions': _own_questions,
  'squad2': _squad2,
  'own roles': _own_roles,
  'own documents': _own_documents,
}
