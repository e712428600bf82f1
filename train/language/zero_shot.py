"""GPT-2's tasks without training: prompts, answers and scores."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from etils import epath

from data import storage
from data.scoring import measures
from data.text import sentences, text_files
from train.language import inputs

if TYPE_CHECKING:
  from data.vocabulary.tokenizer import Tokenizer

PACKAGES = {'summarize': 'rouge_score', 'translate': 'sacrebleu'}
TL_DR = '\nTL;DR:'
EXAMPLES = 2  # translations in the prompt
# Prompts in, continuations out.
Complete = Callable[[Sequence[str]], list[str]]


class Conversation(NamedTuple):
  """A CoQA story, its questions, and the accepted answers to each."""

  story: str
  questions: list[str]
  answers: list[list[str]]


def read_coqa(path: str) -> list[Conversation]:
  """Reads CoQA's JSON; the first answer to each question is the main one."""
  try:
    entries = text_files.loads(text_files.read_text(path))['data']
  except (ValueError, KeyError, TypeError):
    entries = None
  if not isinstance(entries, list):
    raise ValueError(f'{path}: expected CoQA, a JSON object with a list "data"')
  found = []
  for number, entry in enumerate(entries):
    try:
      lists = [entry['answers'], *entry.get('additional_answers', {}).values()]
      answers = [
        [each[turn]['input_text'] for each in lists]
        for turn in range(len(entry['questions']))
      ]
      questions = [turn['input_text'] for turn in entry['questions']]
      story = entry['story']
      for text in (story, *questions, *itertools.chain(*answers)):
        if not isinstance(text, str):
          raise TypeError(f'{text!r} is no text')
      if not questions:
        raise IndexError('no question')
      found.append(Conversation(story, questions, answers))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
      raise ValueError(
        f'{path}: entry {number} of "data" is not as in CoQA ({error!r}):'
        ' expected story, questions and as many answers'
      ) from None
  return found


def coqa_prompt(conversation: Conversation, turn: int) -> str:
  """Returns the story, the earlier turns with their answers, and 'A:'."""
  turns = zip(conversation.questions[:turn], conversation.answers, strict=False)
  lines = [f'Q: {question}\nA: {answers[0]}' for question, answers in turns]
  last = f'Q: {conversation.questions[turn]}\nA:'
  return '\n'.join([conversation.story, '', *lines, last])


def coqa_f1(answer: str, truths: Sequence[str]) -> float:
  """Returns the best F1, averaged over leaving each truth out."""
  # People were scored against the other people (CoQA, evaluate-v1.0.py).
  scores = [measures.answer_score(answer, [truth])[1] for truth in truths]
  others = itertools.combinations(scores, max(1, len(scores) - 1))
  return sum(map(max, others)) / len(scores)


def run_coqa(
  conversations: Sequence[Conversation], complete: Complete
) -> dict[str, float | list[str]]:
  """Answers every question and returns the mean F1 in percent."""
  # Prompts hold the true answers to earlier questions, as in the paper.
  prompts, truths = [], []
  for conversation in conversations:
    for turn, answers in enumerate(conversation.answers):
      prompts.append(coqa_prompt(conversation, turn))
      truths.append(answers)
  answers = [text.strip().partition('\n')[0] for text in complete(prompts)]
  scores = [coqa_f1(*pair) for pair in zip(answers, truths, strict=True)]
  return {
    'questions': len(scores),
    'f1': 100 * sum(scores) / len(scores),
    'answers': answers,
  }


class Article(NamedTuple):
  """A news article and its highlights."""

  text: str
  highlights: str


def read_stories(path: str, urls: str | None = None) -> list[Article]:
  """Reads the .story files of CNN and Daily Mail in a folder, or a JSONL file.

  A .story is the article, then '@highlight' before every sentence of the
  summary; a line of JSONL has `article` and `highlights`. `urls` names a list
  of a split's URLs, such as all_test.txt (the SHA-1 of a URL names its file);
  by default all files are read.
  """
  source = epath.Path(path)
  if source.is_dir():
    files = storage.find_files(source, '*.story')
    if urls is not None:
      names = [
        hashlib.sha1(url.strip().encode()).hexdigest() + '.story'
        for url in text_files.read_text(urls).splitlines()
        if url.strip()
      ]
      files = [source / name for name in names]
    if not files:
      raise FileNotFoundError(f'{path}: holds no .story file')
    articles = []
    for file in files:
      text, *highlights = text_files.read_text(file).split('@highlight')
      if not highlights:
        raise ValueError(f'{file}: has no @highlight')
      summary = '\n'.join(map(str.strip, highlights))
      articles.append(Article(text.strip(), summary))
    return articles
  records = inputs.parse_records(
    text_files.read_text(path),
    path,
    lambda record: all(
      isinstance(record.get(name), str) for name in ('article', 'highlights')
    ),
    '{"article": text, "highlights": text}',
  )
  return [Article(each['article'], each['highlights']) for each in records]


def shorten_articles(
  tokenizer: 'Tokenizer', articles: Sequence[Article], room: int
) -> list[Article]:
  """Returns articles cut at the end to fit into `room` tokens with 'TL;DR:'."""
  (question,) = tokenizer.encode_batch([TL_DR])
  room -= len(question)
  if room < 1:
    raise ValueError(
      'the positions of the model hold no article before a summary: take'
      ' another model'
    )
  encoded = tokenizer.encode_batch([article.text for article in articles])
  # News begins with the most important facts.
  return [
    article
    if len(ids) <= room
    else article._replace(text=tokenizer.decode(ids[:room]))
    for article, ids in zip(articles, encoded, strict=True)
  ]


def run_summaries(
  articles: Sequence[Article], complete: Complete
) -> dict[str, float | list[str]]:
  """Returns the mean ROUGE F1 in percent of 3 sentences after 'TL;DR:'."""
  from rouge_score import rouge_scorer

  kinds = ('rouge1', 'rouge2', 'rougeLsum')
  scorer = rouge_scorer.RougeScorer(list(kinds), use_stemmer=True)
  written = complete([article.text + TL_DR for article in articles])
  summaries = [
    '\n'.join(sentences.split_sentences(text)[:3]) for text in written
  ]
  scores = [
    scorer.score(article.highlights, summary)
    for article, summary in zip(articles, summaries, strict=True)
  ]
  totals = {kind: sum(each[kind].fmeasure for each in scores) for kind in kinds}
  return {
    'articles': len(articles),
    **{kind: 100 * total / len(articles) for kind, total in totals.items()},
    'summaries': summaries,
  }


def read_parallel(source: str, target: str) -> list[tuple[str, str]]:
  """Reads pairs of lines from a file and its translation, of equal length."""
  texts = [text_files.read_text(path) for path in (source, target)]
  # Sentences may hold the other line ends of Unicode.
  lines = [
    text.removesuffix('\n').split('\n') if text else [] for text in texts
  ]
  if len(lines[0]) != len(lines[1]):
    raise ValueError(
      f'{source} has {len(lines[0])} lines, {target} {len(lines[1])}: expected'
      ' as many, each a translation of the other'
    )
  return list(zip(*lines, strict=True))


def run_translation(
  pairs: Sequence[tuple[str, str]], complete: Complete
) -> dict[str, float | str | list[str]]:
  """Translates after `EXAMPLES` pairs 'source = target'; returns the BLEU."""
  import sacrebleu

  if len(pairs) <= EXAMPLES:
    raise ValueError(
      f'{len(pairs)} pairs of sentences: expected more than the {EXAMPLES} that'
      ' serve as examples'
    )
  shown = ''.join(f'{a} = {b}\n' for a, b in pairs[:EXAMPLES])
  rest = pairs[EXAMPLES:]
  written = complete([f'{shown}{source} =' for source, _ in rest])
  lines = [text.strip().partition('\n')[0] for text in written]
  found = [next(iter(sentences.split_sentences(line)), '') for line in lines]
  score = sacrebleu.corpus_bleu(found, [[target for _, target in rest]])
  return {
    'sentences': len(rest),
    'bleu': score.score,
    'signature': str(score),
    'translations': found,
  }
