#!/usr/bin/env bash
# Start-up script of a Cloud TPU host: installs Sesame, trains, and starts again
# after whatever ended the run, until it is finished. Every host of the slice
# runs it, at every boot. It reads four attributes of the TPU's metadata:
#   sesame-source   gs://BUCKET/sesame.tar.gz, the code; what lies there at a
#                   boot is installed, if it is not installed already
#   sesame-config   for --config, such as bert_base
#   sesame-workdir  gs://BUCKET/..., for --workdir
#   sesame-flags    further flags, quoted as in a shell; may be missing
# and two variables:
#   SESAME_HOME     folder of the log and of all else, /opt/sesame
#   SESAME_PAUSE    seconds before it tries again, 10; after a refusal 30 times
#                   as long, in which an outage of Cloud Storage may pass
# It ends with 0 when the run is finished, and with 1 where trying again would
# not help; the log says why.
set -uo pipefail

readonly home=${SESAME_HOME:-/opt/sesame} pause=${SESAME_PAUSE:-10}
readonly server=http://metadata.google.internal/computeMetadata/v1
mkdir -p "$home" && cd "$home" || exit 1
exec >> log 2>&1
export HOME=${HOME:-/root}
export PATH="$HOME/.local/bin:$PATH:/snap/bin"

say() {
  echo "$(date --utc +%FT%TZ) $*" >&2
}

fail() {
  say "error: $*"
  exit 1
}

# Prints an attribute, as soon as the server answers; fails if there is none.
metadata() {
  local reply
  while true; do
    reply=$(curl --silent --show-error --header 'Metadata-Flavor: Google' \
      --write-out '\n%{http_code}' "$server/instance/attributes/$1")
    case $reply in
      *$'\n'200) echo "${reply%$'\n'*}" && return ;;
      *$'\n'404) return 1 ;;
    esac
    sleep "$pause"
  done
}

needed() {
  metadata "$1" || fail "the TPU's metadata has no $1: create the TPU with it"
}

install() {
  command -v uv || curl -LsSf https://astral.sh/uv/install.sh | sh || return
  gcloud storage cp "$archive" new.tar.gz || return
  cmp --silent new.tar.gz installed.tar.gz && return
  rm -rf installed.tar.gz code && mkdir code || return
  tar -xzf new.tar.gz -C code || return
  uv venv --allow-existing --python 3.11 venv || return
  uv pip install --python venv/bin/python -e 'code[tpu]' || return
  mv new.tar.gz installed.tar.gz
}

say "began on $HOSTNAME"
exec 9> lock # which the run inherits
flock --nonblock 9 || fail 'this script, or a run that it began, is at work'

archive=$(needed sesame-source) || exit 1
config=$(needed sesame-config) || exit 1
workdir=$(needed sesame-workdir) || exit 1
flags=()
words=$(metadata sesame-flags)
words=$(xargs --no-run-if-empty printf '%s\n' <<< "$words") ||
  fail 'sesame-flags has a quote without its other half'
[[ -z $words ]] || mapfile -t flags <<< "$words"

until install; do
  sleep "$pause"
done

refused=0
while true; do
  began=$SECONDS
  venv/bin/python -m train.main --config "$config" --workdir "$workdir" \
    "${flags[@]}"
  code=$?
  say "the run ended with $code"
  ((code == 0)) && exit 0
  # 75 is preempted; others were killed, stuck, or lost another host. But what
  # is refused at once, three times, would be refused for ever.
  if ((code == 1 && SECONDS - began < 600)); then
    ((++refused < 3)) || fail 'refused three times: mend what it says above'
    sleep $((30 * pause))
  else
    refused=0
    sleep "$pause"
  fi
done
