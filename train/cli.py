"""The command `sesame` runs each program of Sesame by its name.

  sesame NAME ARGUMENTS       # a program of the list below
  sesame NAME --help          # the options of this program
  sesame configs              # the shipped configs, and their hardware
  sesame tables               # the tables of papers, what to run for them, and
                              # the hours of the runs in results/
  sesame topologies           # the TPU slices and GPUs that preflight knows
  sesame completion bash      # a script by which bash (or zsh) completes names

It works in any folder. `python -m train.NAME` runs the same program, but not
where a file train.py or a folder data of your own hides Sesame's packages.
"""

import ast
import importlib.metadata
import json
import pathlib
import re
import runpy
import sys

import configs

PACKAGE = 'sesame-lm'
# Programs that are not train/NAME.py.
ELSEWHERE = {
  'train': 'train.main',
  'prepare': 'data.prepare',
  'phrases': 'data.phrases',
}
NOT_DOORS = ('__init__', 'cli', 'main')

_BASH = """
_sesame() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  # "--config=bert" is three words.
  [[ $word == = ]] && word=
  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}
  [[ $COMP_CWORD == 1 ]] && before=sesame
  # In zsh it is one, and its completions have the option, too.
  local option=
  [[ $word == --*=* ]] && before=${word%%=*} && option=$before= word=${word#*=}
  case $before in
    sesame) COMPREPLY=($(compgen -W "@DOORS@" -- "$word")) ;;
    completion) COMPREPLY=($(compgen -W "bash zsh" -- "$word")) ;;
    --config) COMPREPLY=($(compgen -W "@CONFIGS@" -- "$word")) ;;
    --table) COMPREPLY=($(compgen -W "@TABLES@" -- "$word")) ;;
    --topology) COMPREPLY=($(compgen -W "@TOPOLOGIES@" -- "$word")) ;;
    *) if [[ $word == -* ]]; then
         local options=$(sesame "${COMP_WORDS[1]}" --help 2>/dev/null \
           | grep -oE -- '--[a-zA-Z_]+' | sort -u)
         COMPREPLY=($(compgen -W "$options" -- "$word"))
       else
         COMPREPLY=($(compgen -f -- "$word"))
       fi ;;
  esac
  COMPREPLY=("${COMPREPLY[@]/#/$option}")
}
complete -o filenames -F _sesame sesame
"""
SHELLS = {
  'bash': _BASH,
  # zsh runs bash's functions, once it completes at all.
  'zsh': f"""
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
autoload -Uz bashcompinit && bashcompinit
{_BASH}""",
}


def doors() -> dict[str, str]:
  """Returns the programs: name -> module."""
  here = pathlib.Path(__file__).parent
  found = {
    path.stem: f'train.{path.stem}'
    for path in here.glob('*.py')
    if path.stem not in NOT_DOORS
  }
  return dict(sorted((found | ELSEWHERE).items()))


def shipped_configs() -> dict[str, str]:
  """Returns the hardware and titles of the shipped configs' docstrings."""
  from train.run import settings

  folder = pathlib.Path(configs.__file__).parent
  files = {name: folder / f'{name}.py' for name in settings.shipped_names()}
  hardware = {
    name: re.search(r'^Hardware: (.+)\.$', _docstring(file), re.MULTILINE)[1]
    for name, file in files.items()
  }
  width = max(map(len, hardware.values()))
  return {
    name: f'{hardware[name]:{width}}  {_title(file)}'
    for name, file in files.items()
  }


def shipped_tables() -> dict[str, str]:
  """Returns the runs, measured hours and titles of the tables of papers."""
  from train.papers import table_rows

  folder = pathlib.Path(configs.__file__).parent / 'tables'
  found = {}
  for name in table_rows.shipped_tables():
    runs = table_rows.count_runs(table_rows.load_table(name))
    stem = name.replace('/', '_')
    hours = _hours(folder.parents[1] / 'results/tables' / stem)
    found[name] = (
      f'{f"{runs} runs" if runs else "":9}'
      f'{f"{hours:.1f} h" if hours else "":8}{_title(folder / f"{stem}.py")}'
    )
  return found


def _hours(folder: pathlib.Path) -> float:
  """Returns the hours of the runs whose figures a checkout has, else 0."""
  page = folder.with_name(f'{folder.name}.json')
  seconds = 0.0
  for file in (*folder.rglob('*.json'), *([page] if page.exists() else ())):
    found = json.loads(file.read_text())
    # A page names its pre-trainings, which lie in a folder that tables share.
    runs = *found.get('runs', ()), *found.get('pretrainings', ())
    for run in (found, *runs):
      seconds += run.get('seconds', 0)
  return seconds / 3600


def topologies() -> list[str]:
  """Returns the names of TPU slices and of GPUs."""
  from train.slices import gpus, topology

  cards = [f'{card}-{n}' for card in gpus.CARDS for n in gpus.COUNTS]
  return [*topology.names(), *cards]


def _docstring(path: pathlib.Path) -> str:
  """Returns a module's docstring, without importing."""
  return ast.get_docstring(ast.parse(path.read_text())) or ''


def _title(path: pathlib.Path) -> str:
  """Returns the first paragraph of a module's docstring."""
  return ' '.join(_docstring(path).split('\n\n')[0].split())


def _module_title(module: str) -> str:
  path = pathlib.Path(__file__).parents[1] / f'{module.replace(".", "/")}.py'
  title = _title(path)
  # The command line that a title may hold is the name that stands before it.
  return title.partition(': python -m')[0].rstrip('.')


def _rows(titles: dict[str, str]) -> str:
  width = max(map(len, titles))
  return '\n'.join(f'{name:{width}}  {titles[name]}' for name in titles)


def completion(shell: str) -> str:
  """Returns the text that makes a shell, 'bash' or 'zsh', complete `sesame`."""
  words = {
    '@DOORS@': [*doors(), *LISTS, 'completion'],
    '@CONFIGS@': shipped_configs(),
    '@TABLES@': shipped_tables(),
    '@TOPOLOGIES@': topologies(),
  }
  text = SHELLS[shell]
  for place, names in words.items():
    text = text.replace(place, ' '.join(names))
  return text.strip()


def run(name: str, *arguments: str) -> None:
  """Runs a program of `doors()` in this process."""
  sys.argv = [name, *arguments]
  runpy.run_module(doors()[name], run_name='__main__', alter_sys=True)


def _help() -> str:
  titles = {door: _module_title(module) for door, module in doors().items()}
  return f'{__doc__.strip()}\n\n{_rows(titles)}'


# What is printed alone, without a program.
LISTS = {
  'configs': lambda: print(_rows(shipped_configs())),
  'tables': lambda: print(_rows(shipped_tables())),
  'topologies': lambda: run('preflight', '--topology', 'help'),
}
PRINTED = {
  **{(word,): lambda: print(_help()) for word in ('--help', '-h', 'help')},
  **{
    (word,): lambda: print(importlib.metadata.version(PACKAGE))
    for word in ('--version', 'version')
  },
  **{(name,): of for name, of in LISTS.items()},
  **{
    ('completion', shell): lambda shell=shell: print(completion(shell))
    for shell in SHELLS
  },
}


def main() -> None:
  """Entry point."""
  arguments = tuple(sys.argv[1:]) or ('--help',)
  if arguments in PRINTED:
    try:
      PRINTED[arguments]()
      sys.stdout.flush()
    except BrokenPipeError:
      from train.run import command

      command.end_unread()
    return
  name, *rest = arguments
  if name in LISTS and name not in doors():
    sys.exit(
      f'error: sesame {name} takes no {" ".join(rest)}: it prints a list'
    )
  if name == 'completion':
    sys.exit(
      f'error: sesame completion: expected {" or ".join(SHELLS)} after it'
    )
  if name not in doors():
    known = ', '.join([*doors(), *LISTS, 'completion'])
    sys.exit(f'error: sesame {name}: expected one of {known}')
  run(name, *rest)


if __name__ == '__main__':
  main()
