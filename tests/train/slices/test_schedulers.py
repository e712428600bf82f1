"""The files for JobSet and SkyPilot: their fields, and the lines they run.

JobSet's fields are those of its Python models. SkyPilot is too large to install
for a test; that of version 0.14.1 read train/slices/sky.yaml without a message.
"""

import math
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest
import tpu_host
import yaml
from kubeflow_trainer_api import models

from train.run import command, settings
from train.slices import topology

SLICES = pathlib.Path(topology.__file__).parent
# Of SkyPilot's schema, those that a file of ours may have.
SKY = 'name resources num_nodes workdir envs setup run'.split()
SKY_RESOURCES = (
  'infra accelerators accelerator_args use_spot job_recovery'.split()
)


def read(name):
  return yaml.safe_load((SLICES / name).read_text())


def job_of(jobset):
  (replicated,) = jobset['spec']['replicatedJobs']
  return replicated['template']['spec']


def unknown(found, known, at=''):
  """Returns the paths of values that a model did not take as they are."""
  if isinstance(found, dict):
    return [
      path
      for key, value in found.items()
      for path in unknown(value, (known or {}).get(key), f'{at}.{key}')
    ]
  if isinstance(found, list):
    pairs = zip(found, known or [None] * len(found), strict=True)
    return [path for a, b in pairs for path in unknown(a, b, f'{at}[]')]
  return [] if found == known else [at]


def test_jobset_has_fields_of_its_models_alone():
  found = read('jobset.yaml')
  known = models.JobsetV1alpha2JobSet.from_dict(found).to_dict()
  assert unknown(found, known) == []
  # A field in the wrong place is found.
  job = job_of(found)
  job['template']['podFailurePolicy'] = job.pop('podFailurePolicy')
  known = models.JobsetV1alpha2JobSet.from_dict(found).to_dict()
  paths = unknown(found, known)
  assert paths and all('template.podFailurePolicy' in path for path in paths)


def test_jobset_starts_again_after_a_preemption_however_often():
  found = read('jobset.yaml')
  assert (found['apiVersion'], found['kind']) == (
    'jobset.x-k8s.io/v1alpha2',
    'JobSet',
  )
  (rule,) = found['spec']['failurePolicy']['rules']
  assert rule['action'] == 'RestartJobSetAndIgnoreMaxRestarts'
  assert rule['onJobFailureReasons'] == ['PodFailurePolicy']
  job = job_of(found)
  pod = job['template']['spec']
  (container,) = pod['containers']
  preempted, taken = job['podFailurePolicy']['rules']
  assert preempted['onExitCodes'] == {
    'containerName': container['name'],
    'operator': 'In',
    'values': [command.PREEMPTED_EXIT],
  }
  assert taken['onPodConditions'][0]['type'] == 'DisruptionTarget'
  assert preempted['action'] == taken['action'] == 'FailJob'
  assert pod['restartPolicy'] == 'Never'  # which podFailurePolicy requires
  assert job['backoffLimit'] == 0


def test_the_hosts_of_jobset_are_those_of_its_slice():
  job = job_of(read('jobset.yaml'))
  pod = job['template']['spec']
  layout = pod['nodeSelector']['cloud.google.com/gke-tpu-topology']
  (container,) = pod['containers']
  chips = container['resources']['limits']['google.com/tpu']
  assert job['parallelism'] == job['completions']
  assert job['parallelism'] * chips == math.prod(map(int, layout.split('x')))
  # SkyPilot's file asks for a slice of the same size.
  sky = read('sky.yaml')['resources']
  assert sky['accelerators'] == f'tpu-v5litepod-{job["parallelism"] * chips}'


def test_sky_has_fields_of_its_schema_alone():
  found = read('sky.yaml')
  assert set(found) <= set(SKY)
  assert set(found['resources']) <= set(SKY_RESOURCES)
  recovery = found['resources']['job_recovery']
  assert recovery['recover_on_exit_codes'] == [command.PREEMPTED_EXIT]
  assert found['num_nodes'] == 1


# Stand-ins of programs; the last is the Python of the environment.
PROGRAMS = {
  'curl': 'true',
  'gcloud': 'echo "$@" >> "$LOG"; cat "$ARCHIVE"',
  'uv': (
    'echo "$@" >> "$LOG"; [[ $1 == venv ]] || exit 0;'
    ' mkdir -p .venv/bin; ln -sf "$PYTHON" .venv/bin/python'
  ),
}
MAIN = """
import os, sys
print(os.getpid(), *sys.argv[1:])
sys.exit(75)
"""


@pytest.fixture
def machine(tmp_path):
  """Returns a function (shell arguments, variables, folder) -> its end."""
  programs = tmp_path / 'bin'
  programs.mkdir()
  for name, lines in PROGRAMS.items():
    path = programs / name
    path.write_text(f'#!/usr/bin/env bash\n{lines}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
  archive = tmp_path / 'sesame.tar.gz'
  code = {'train/__init__.py': '', 'train/main.py': MAIN}
  archive.write_bytes(tpu_host.archive(code, ()))

  def run(arguments, variables, folder):
    process = subprocess.Popen(
      arguments,
      cwd=folder,
      stdout=subprocess.PIPE,
      text=True,
      env={
        'PATH': f'{programs}:{os.environ["PATH"]}',
        'HOME': str(tmp_path),
        'LOG': str(tmp_path / 'log'),
        'ARCHIVE': str(archive),
        'PYTHON': sys.executable,
        **variables,
      },
    )
    out, _ = process.communicate(timeout=60)
    return process.returncode, process.pid, out.split()

  run.log = tmp_path / 'log'
  run.archive = archive
  return run


def flags_of(words):
  """Returns {flag: value}, checked as train.main checks them."""
  words = [word for word in words if word]
  flags, i = {}, 0
  while i < len(words):
    name, equals, value = words[i].removeprefix('--').partition('=')
    flags[name] = value if equals else words[i + 1]
    i += 1 if equals else 2
  known = settings.flatten(settings.load_config(flags['config']))
  assert {name[7:] for name in flags if name.startswith('config.')} <= {*known}
  return flags


def test_the_lines_of_jobset_install_and_train(machine, tmp_path):
  pod = job_of(read('jobset.yaml'))['template']['spec']
  (container,) = pod['containers']
  variables = {entry['name']: entry['value'] for entry in container['env']}
  folder = tmp_path / 'home'
  folder.mkdir()
  code, pid, words = machine(
    container['command'] + container['args'], variables, folder
  )
  # The shell is replaced, so that SIGTERM of the pod reaches the training.
  assert (code, words[0]) == (75, str(pid))
  assert flags_of(words[1:]) == {
    'config': 'bert_base',
    'workdir': 'gs://BUCKET/bert_base',
    'config.data.folder': 'gs://BUCKET/books',
  }
  assert machine.log.read_text().splitlines() == [
    'storage cat gs://BUCKET/sesame.tar.gz',
    'venv --python 3.11',
    'pip install -e .[tpu]',
  ]


def test_jobset_ends_where_the_code_is_not_there(machine, tmp_path):
  (container,) = job_of(read('jobset.yaml'))['template']['spec']['containers']
  variables = {entry['name']: entry['value'] for entry in container['env']}
  machine.archive.unlink()
  code, _, words = machine(
    container['command'] + container['args'], variables, tmp_path
  )
  assert code not in (0, 75) and not words


def test_the_lines_of_sky_install_and_train(machine, tmp_path):
  sky = read('sky.yaml')
  folder = tmp_path / 'sky_workdir'
  shutil.unpack_archive(machine.archive, folder)
  variables = sky['envs'] | {'BUCKET': 'gs://mine'}
  assert machine(['bash', '-c', sky['setup']], variables, folder)[0] == 0
  code, pid, words = machine(['bash', '-c', sky['run']], variables, folder)
  assert (code, words[0]) == (75, str(pid))
  assert flags_of(words[1:]) == {
    'config': 'bert_base',
    'workdir': 'gs://mine/bert_base',
    'config.data.folder': 'gs://mine/books',
  }
  assert 'pip install -e .[tpu]' in machine.log.read_text()
