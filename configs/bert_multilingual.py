r"""Multilingual BERT-Base, cased (google-research/bert, multilingual.md, 2018).

Hardware: v5litepod-16.

The Wikipedias of 104 languages, of which Chinese in two scripts is one: 103
sources. A language with a share p of the text has p^0.7, renormalised, of the
examples and of the words that the vocabulary of 119,547 pieces is trained on
(English 100 times Icelandic, not 1,000 times); nothing marks the language of a
text. Steps, batches and rates are not published; these are bert_base's, as the
release's scripts have them. Meant for 16 chips of 16 GB or more. Expected, as
released: XNLI 81.9 in English, 76.6 in Chinese, fine-tuned on translations.

  python -m train.preflight --config bert_multilingual --topology v5e-16
  python -m data.prepare --source en=tfds:wikipedia/20230601.en \
    --source de=tfds:wikipedia/20230601.de \
    --tokenizer train:wordpiece:119547:cased --held_out 0.005 \
    --out gs://BUCKET/wikipedias
  python -m train.main --config bert_multilingual \
    --config.data.folder=gs://BUCKET/wikipedias \
    --workdir gs://BUCKET/bert_multilingual

The second command takes a --source for each language that you have.
"""

import ml_collections

from configs import bert_base

# The release's list: the 100 largest Wikipedias of its time, Thai, Mongolian.
LANGUAGES = [
  'af',
  'sq',
  'ar',
  'an',
  'hy',
  'ast',
  'az',
  'ba',
  'eu',
  'bar',
  'be',
  'bn',
  'bpy',
  'bs',
  'br',
  'bg',
  'my',
  'ca',
  'ceb',
  'ce',
  'zh',
  'cv',
  'hr',
  'cs',
  'da',
  'nl',
  'en',
  'et',
  'fi',
  'fr',
  'gl',
  'ka',
  'de',
  'el',
  'gu',
  'ht',
  'he',
  'hi',
  'hu',
  'is',
  'io',
  'id',
  'ga',
  'it',
  'ja',
  'jv',
  'kn',
  'kk',
  'ky',
  'ko',
  'la',
  'lv',
  'lt',
  'lmo',
  'nds',
  'lb',
  'mk',
  'mg',
  'ms',
  'ml',
  'mr',
  'min',
  'ne',
  'new',
  'no',
  'nn',
  'oc',
  'fa',
  'pms',
  'pl',
  'pt',
  'pa',
  'ro',
  'ru',
  'sco',
  'sr',
  'sh',
  'scn',
  'sk',
  'sl',
  'azb',
  'es',
  'su',
  'sw',
  'sv',
  'tl',
  'tg',
  'ta',
  'tt',
  'te',
  'tr',
  'uk',
  'ur',
  'uz',
  'vi',
  'vo',
  'war',
  'cy',
  'fy',
  'pnb',
  'yo',
  'th',
  'mn',
]


def get_config(arg: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `arg` as for `variants.vary_bert`."""
  config = bert_base.get_config(arg).unlock()
  config.data.source = ','.join(
    f'{name}=tfds:wikipedia/20230601.{name}' for name in LANGUAGES
  )
  config.data.tokenizer = 'train:wordpiece:119547:cased'
  return config.lock()
