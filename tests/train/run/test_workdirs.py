"""The folders of runs and of their token stores."""

from train.run import settings, workdirs


def store_of(**overrides):
  config = settings.load_config('bert_mini')
  keys = {f'data.{key}': value for key, value in overrides.items()}
  return workdirs.default_store(settings.with_overrides(config, keys))


def test_a_store_has_the_name_of_its_text():
  assert store_of(source='a/books.txt').startswith('runs/stores/books-')
  assert store_of(source='b/books.txt') != store_of(source='a/books.txt')
  assert store_of(held_out=0.1) != store_of()
  # The exponent means nothing for one language.
  assert store_of(language_exponent=0.3) == store_of()
  folders = {'source': 'gs://no-such/books/*/'}  # it is not listed
  assert store_of(**folders).startswith('runs/stores/books-')
  assert store_of(**folders, language_exponent=0.3) != store_of(**folders)
  several = {'source': 'en=books/*.txt,de=buecher/*.txt'}
  assert store_of(**several).startswith('runs/stores/en-de-')
  assert store_of(**several, language_exponent=0.3) != store_of(**several)
