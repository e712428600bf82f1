"""Small files of the sets of edge probing, counted by hand."""

import json

# Words, XPOS, parse bits, lemma of a predicate, its roleset, roles.
EWT = [
  [
    'Ann NNP (TOP(S(NP-SBJ*) - - (ARG0*)'.split(),
    'ate VBD (VP* eat eat.01 (V*)'.split(),
    'figs NNS (NP* - - (ARG1*'.split(),
    'from IN (PP-LOC=2* - - *'.split(),
    'Rome NNP (NP*)))) - - *)'.split(),
    '. . *)) - - *'.split(),
  ],
  ['Hello UH (TOP(INTJ*)) - -'.split()],
  [
    'I PRP (TOP(S(NP*) - - (ARG0*) *'.split(),
    'saw VBD (VP* see see.01 (V*) *'.split(),
    'him PRP (NP*) - - (ARG1*) (ARG0*)'.split(),
    'run VB (VP*)))) run run.02 (C-ARG1*) (V*)'.split(),
  ],
]
CONLLU = """\
# text = Ann's figs
1-2\tAnn's\t_\t_\t_\t_\t_\t_\t_\t_
1\tAnn\tAnn\tPROPN\tNNP\t_\t3\tnmod:poss\t_\t_
2\t's\t's\tPART\tPOS\t_\t1\tcase\t_\t_
2.1\tfresh\t_\t_\t_\t_\t_\t_\t_\t_
3\tfigs\tfig\tNOUN\tNNS\t_\t0\troot\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

"""
GUM = """\
# newdoc id = GUM_bio_ann
# genre = bio
# sent_id = GUM_bio_ann-1
1\tAnn\tAnn\tPROPN\tNNP\t2\tnsubj\t(1-person)\t(1)
2\tsold\tsell\tVERB\tVBD\t0\troot\t_\t_
3\ther\ther\tPRON\tPRP$\t4\tposs\t(2-object(1-person)\t(2(1)
4\tcar\tcar\tNOUN\tNN\t2\tobj\t2)\t2)

# sent_id = GUM_bio_ann-2
1\tIt\tit\tPRON\tPRP\t2\tnsubj\t(2-object)\t(2)
2\trattled\trattle\tVERB\tVBD\t0\troot\t_\t_

"""
RELATIONS = """\
1\t"The <e1>child</e1> was in the <e2>iron cradle</e2>'s shade."
Content-Container(e1,e2)
Comment:

2\t"A <e1>dog</e1> saw a <e2>cat</e2>."
Other
Comment: none

"""


# Of each split: how many copies more, and the name that Ann has.
SPLITS = {'train': (2, 'Eve'), 'dev': (0, 'Ann'), 'test': (1, 'Bob')}


def write(folder, copies=1):
  """Writes all sets, `copies` times the same and more, see `SPLITS`."""
  lines = []
  for number, sentence in enumerate(EWT):
    for place, (word, tag, bits, lemma, sense, *roles) in enumerate(sentence):
      fields = ['doc', number, place, word, tag, bits, lemma, sense, *roles]
      lines.append('\t'.join(map(str, fields)))
    lines.append('')
  for split, (more, name_of_ann) in SPLITS.items():
    for name, text in (
      (f'ewt_propbank/ewt_srl_{split}.gold_conll', '\n'.join([*lines, ''])),
      (f'ud_english_ewt/en_ewt-ud-{split}.conllu', CONLLU),
      (f'ontogum/{split}.tsv', GUM),
    ):
      (folder / name).parent.mkdir(exist_ok=True)
      text = text.replace('Ann', name_of_ann) * (copies + more)
      (folder / name).write_text(text)
  (folder / 'semeval2010_task8').mkdir()
  for name, animal, count in (
    ('TRAIN_FILE.TXT', 'cat', 10),
    ('TEST_FILE_FULL.TXT', 'cow', 9),
  ):
    text = RELATIONS.replace('cat', animal).replace('\n', '\r\n')
    (folder / 'semeval2010_task8' / name).write_text(text * count * copies)
  return folder


def write_own(folder, name, count=40):
  """Writes a task of pairs: is the second word, of four, after the first?"""
  (folder / name).mkdir()
  words = 'ann bob cid dan'.split()
  for number, split in enumerate(('train', 'dev', 'test')):
    records = []
    for i in range(number, count):
      one, two = words[i % 4], words[i // 4 % 4]
      label = 'after' if one < two else 'before'
      target = {'span1': [0, 1], 'span2': [2, 3], 'label': label}
      records.append({'text': f'{one} and {two} .', 'targets': [target]})
    text = '\n'.join(map(json.dumps, records))
    (folder / name / f'{split}.jsonl').write_text(text + '\n')
  return folder


def shown(sentence):
  """Returns a sentence's targets as text: label:first-end[,first-end]."""
  return ' '.join(
    f'{"+".join(labels)}:' + ','.join(f'{a}-{b}' for a, b in spans)
    for spans, labels in sentence.targets
  )
