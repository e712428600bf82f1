"""Begins and ends every command: arguments, and messages about errors.

Bad input ends in one clear line, a bug in a trace. Arguments are read before
any heavy import, by the flags of a config or by a parser made here.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

import configs
import data
import models
import train
from data import program, scratch, storage
from data.steady_errors import SteadyErrors
from train.host import chips, files

_ADDRESSES = 4e9  # bytes that a run of seconds needs, and some more
PREEMPTED_EXIT = 75  # EX_TEMPFAIL of sysexits.h: try again
# Defined here, as a flag can be defined only once.
CONFIG = config_flags.DEFINE_config_file(
  'config',
  None,
  'A shipped config by name (`sesame configs` lists them), or the path of a'
  ' config file. NAME:ARG passes an argument to it, as in transfer:task=rte.',
)


def _or_none(parser: type[flags.ArgumentParser]) -> flags.ArgumentParser:
  """Returns a parser that also takes None, for a key that may be empty."""

  class OrNone(parser):
    def parse(self, argument: str) -> str | float | None:
      return None if argument == 'None' else super().parse(argument)

  return OrNone()


for _type, _parser in (
  (int, flags.IntegerParser),
  (float, flags.FloatParser),
  (str, flags.ArgumentParser),
):
  config_flags.register_flag_parser_for_type(_type, _or_none(_parser))
_PRINT_CONFIG = flags.DEFINE_bool(
  'print_config',
  False,
  'Print each key of the config with its value and comment, and stop.',
)
# Help texts of WEIGHTS, by the models that a command takes.
LANGUAGE_MODELS = (
  'a GPT or GPT-2: a workdir (the folder of a run), a folder of published'
  " weights, or a name on Hugging Face's hub, such as openai-community/gpt2"
)
ALL_MODELS = (
  'a model: a workdir (the folder of a run), a folder of published weights, or'
  " a name on Hugging Face's hub, such as google-bert/bert-base-uncased"
)
T = TypeVar('T')
_OURS = tuple(
  str(pathlib.Path(package.__file__).parent)
  for package in (configs, data, models, train)
)


class _Help(argparse.RawDescriptionHelpFormatter):
  """Shows the defaults that the text of an option does not name."""

  def _get_help_string(self, action: argparse.Action) -> str:
    told = 'default' in action.help or action.default in (None, [], '')
    shown = '' if told or action.nargs == 0 else '; by default %(default)s'
    return action.help + shown


def parser(
  name: str, doc: str, weights: str | None = None, epilog: str | None = None
) -> argparse.ArgumentParser:
  """Returns the parser of a command without a config, python -m train.`name`.

  --help shows `doc` and `epilog` as written. `weights` is the help of the
  argument WEIGHTS, which comes with --tokenizer; None leaves both out.
  """
  made = argparse.ArgumentParser(
    prog=program.called(f'train.{name}'),
    description=doc,
    formatter_class=_Help,
    epilog=epilog,
  )
  if weights is not None:
    add_weights(made, weights)
  return made


def add_weights(
  to: argparse.ArgumentParser, help_text: str, nargs: str | None = None
) -> None:
  """Adds the argument WEIGHTS and the option --tokenizer."""
  to.add_argument('weights', metavar='WEIGHTS', nargs=nargs, help=help_text)
  to.add_argument(
    '--tokenizer',
    metavar='PATH',
    help='the vocabulary of the weights, if it is not in their folder: a file,'
    ' a folder, or a name on the hub',
  )


def adders(
  to: argparse._ActionsContainer,
) -> tuple[Callable, Callable, Callable]:
  """Returns functions that add an argument, a switch, a number of 1 or more."""
  add = to.add_argument
  switch = functools.partial(add, action='store_true')
  return add, switch, functools.partial(add, type=positive)


def add_json(to: argparse.ArgumentParser, form: str = 'JSON') -> None:
  """Adds the option --json, of a command that prints JSON or JSONL."""
  to.add_argument(
    '--json', action='store_true', help=f'print {form} on standard output'
  )


def _be_quiet() -> None:
  """Sets what libraries say and import; call it before JAX.

  Without a TPU, libtpu (which the compiler of `train.preflight` needs) would
  look for one and begin each command with six lines of errors.
  """
  asked = 'JAX_PLATFORMS' in os.environ or any(
    name.startswith('TPU_') for name in os.environ
  )
  # 1 is JAX's own. On a CPU, XLA reports a compilation of minutes as an error.
  level = '1' if chips.of_tpu() or chips.of_nvidia() else '3'
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', level)
  # TensorFlow would import Keras, which nothing here uses, for 40 % of its own
  # import; so told, it looks for a package that is rarely installed.
  os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
  if 'jax' not in sys.modules and not asked and not chips.of_tpu():
    sys.modules['libtpu'] = None  # an import of it fails


def main(
  arguments: argparse.Namespace, work: Callable[[argparse.Namespace], None]
) -> None:
  """Runs `work(arguments)` as `run` does, and keeps compiled programs.

  The work checks its input first, and imports JAX only then.
  """
  chosen = os.environ.get('JAX_COMPILATION_CACHE_DIR')
  if (
    not chosen and 'jax' not in sys.modules
  ):  # JAX reads the variable at import
    home = os.environ.get('XDG_CACHE_HOME', os.path.expanduser('~/.cache'))
    os.environ['JAX_COMPILATION_CACHE_DIR'] = os.path.join(home, 'sesame/xla')

  def checked() -> None:
    storage.check_buckets(_each([*vars(arguments).values()]))
    work(arguments)

  scratch.end_on_sigterm()
  run(checked)


def _each(values: list[Any]) -> Iterator[Any]:
  """Yields the values of options, and those inside of lists of them."""
  for value in values:
    if isinstance(value, list):
      yield from _each(value)
    else:
      yield value


def positive(text: str) -> int:
  """Returns the number of an option that must be 1 or more."""
  if not text.isdecimal() or not int(text):
    raise argparse.ArgumentTypeError(f'{text}: expected 1 or more')
  return int(text)


def text(value: str) -> storage.Text:
  """Returns the text of an option, which must be UTF-8."""
  try:
    value.encode()
  except UnicodeEncodeError as error:
    byte = ord(value[error.start]) & 0xFF
    raise argparse.ArgumentTypeError(
      f'{value!r}: byte 0x{byte:02X} at character {error.start + 1:,} is not'
      ' UTF-8, expected text in UTF-8'
    ) from None
  return storage.Text(value)


@functools.cache
def define_workdir() -> None:
  """Adds the flag --workdir."""
  flags.DEFINE_string(
    'workdir',
    None,
    'Folder of the run; by default a folder in runs, named after the config and'
    ' a hash of its keys.',
  )


def workdir(ending: str = '') -> str:
  """Returns --workdir, by default one of the config's name with an ending."""
  from train.run import settings

  folder = flags.FLAGS.workdir or (
    settings.default_workdir(config_file(), CONFIG.value) + ending
  )
  files.check_folder('--workdir', folder)
  return folder


def run_with_config(
  job: Callable[[], None], example: str, *required: str
) -> None:
  """Reads the command line, checks the `required` flags and runs a job.

  `example` is what may follow --config, for messages.
  """
  from train.run import settings

  _be_quiet()
  app.define_help_flags()
  main_module = sys.modules['__main__']  # its docstring begins the help
  if spec := main_module.__spec__:
    main_module.__doc__ = (main_module.__doc__ or '').replace(
      f'python -m {spec.name}', program.called(spec.name)
    )
  shown = {'config', 'print_config', 'workdir'}  # by --help
  for name in shown & {*flags.FLAGS}:
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
  with _bad_input_in_one_line():
    # The config flag reads its overrides from sys.argv itself.
    sys.argv = settings.expand_arguments(sys.argv)
    try:
      unknown = _parse_flags()
    except flags.Error as error:
      raise ValueError(str(error).removeprefix('flag ')) from None
    if unknown:
      raise ValueError(f'{" ".join(unknown)}: not understood; see --help')
    settings.check_filled(CONFIG.value)
    if CONFIG.value is not None and _PRINT_CONFIG.value:
      from train.run import key_comments

      print(key_comments.as_text(CONFIG.value))
      return
    for name in ('config', *required):
      if flags.FLAGS[name].value is None:
        door = pathlib.Path(sys.argv[0]).stem
        known = flags.FLAGS[name].help.rstrip('.')
        if name == 'config':
          known = f'configs are {", ".join(settings.shipped_names())}, or files'
          known += ' of your own'
        raise ValueError(
          f'--{name} is missing; {known}. For example:\n'
          f'  {program.called(f"train.{door}")} --config {example}'
        )
    logging.set_verbosity(logging.WARNING)  # orbax logs every file it writes
    # It logs what it raises, too; one message is enough.
    logging.get_absl_logger().addFilter(
      lambda record: not (record.exc_info and 'orbax' in record.pathname)
    )
    storage.check_buckets(paths_of(CONFIG.value))
    job()


def _parse_flags() -> list[str]:
  """Returns the arguments that are no flags; --help ends with 0."""
  try:
    return flags.FLAGS(['--help' if x == '-h' else x for x in sys.argv])[1:]
  except SystemExit:  # absl ends its help as an error
    sys.exit(0)


def paths_of(config: ml_collections.ConfigDict) -> list[Any]:
  """Returns the values of a config that may be paths, and those in lists."""
  from data.text import languages
  from train.run import settings

  flat = settings.flatten(config)
  # An expression may begin as an address does.
  values = [flat[key] for key in flat if key != 'data.document_break']
  if 'task' not in config and isinstance(config.data.source, str):
    with contextlib.suppress(ValueError):  # of a bad list, which is told later
      values += languages.paths(config.data.source)
    for phase in config.train.phases:
      if isinstance(phase, tuple | list) and len(phase) > 4:
        values.append(str(phase[4]).partition(':')[2])
  return values


def config_file() -> str:
  """Returns the path of --config, with its argument."""
  return config_flags.get_config_filename(flags.FLAGS['config'])


def run(job: Callable[[], T]) -> T:
  """Runs a job and returns its result; bad input ends it in one line.

  Errors of the operating system and errors that our code raises become
  messages; any other is a bug and keeps its trace. A preempted job exits with
  PREEMPTED_EXIT, so its scheduler restarts it. One process's error ends all.
  Libraries tell of what is not wrong where JAX was imported before.
  """
  _be_quiet()
  with _bad_input_in_one_line():
    return job()


@contextlib.contextmanager
def _bad_input_in_one_line() -> Iterator[None]:
  with SteadyErrors():
    _tell_of_little_memory()
    try:
      yield
      if sys.stdout is not None:
        sys.stdout.flush()
    except BaseException as error:
      if isinstance(error, BrokenPipeError) and _is_unread():
        end_unread()
      _end(error)
      raise


def _is_unread() -> bool:
  """Returns whether nobody reads standard output any more."""
  output = select.poll()
  output.register(1, 0)
  return any(event & select.POLLERR for _, event in output.poll(0))


def end_unread() -> NoReturn:
  """Ends without a word, as where `head` has read all that it wanted."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python still flushes
  sys.exit(128 + signal.SIGPIPE)


def _tell_of_little_memory() -> None:
  """Tells of a limit under which libraries abort before we could say why."""
  limit, _ = resource.getrlimit(resource.RLIMIT_AS)
  if limit != resource.RLIM_INFINITY and limit < _ADDRESSES:
    print(
      f'note: the limit of this shell is {limit / 1e9:.1f} GB of addresses'
      ' (ulimit -v). JAX and TensorFlow reserve more than they use, and where'
      ' they end in "bad_alloc" or "failed to map segment", set a higher limit',
      file=sys.stderr,
    )


def _end(error: BaseException) -> None:
  """Exits with a message for the user; returns if the error is a bug."""
  processes = sys.modules.get('train.host.processes')
  message = None
  if isinstance(error, KeyboardInterrupt):
    message = (
      '\ninterrupted: what is saved stays, and the same command continues from'
      ' there; where nothing is saved, it begins again'
    )
  elif isinstance(error, ValueError | OSError | FloatingPointError):
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    if isinstance(error, OSError) or raised_in.startswith(_OURS):
      message = f'error: {error}'
      if getattr(error, 'filename', None) and error.strerror:  # the system's
        message = f'error: {error.filename}: {error.strerror}'
  elif isinstance(error, MemoryError):
    message = 'error: no memory is left for this program: make room or give it'
    message += ' smaller batches, shorter lines or a smaller model'
    message += f' ({error})' if str(error) else ''
  elif told := storage.explain(error):
    message = f'error: {told}'
  if processes is None:  # nothing began: this process is alone
    if message is not None:
      print(message, file=sys.stderr)
      sys.exit(1)
  elif isinstance(error, processes.Preempted):
    print(error, file=sys.stderr)
    sys.exit(PREEMPTED_EXIT)
  elif not processes.is_alone() and 'Gloo' in str(error):
    processes.end_after_loss(error)
  elif message is not None:
    processes.end_all(message)
  else:
    processes.end_others(error)
