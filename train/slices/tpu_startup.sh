#!/usr/bin/env bash
# Start-up script of a Cloud TPU host: installs Sesame once, trains, and starts
# again after whatever ended the run, until it is finished. Every host of the
# slice runs it, at every boot. It reads four attributes of the TPU's metadata:
#   sesame-source   gs://BUCKET/sesame.tar.gz, the code
#   sesame-config   for --config, such as bert_base
#   sesame-workdir  gs://BUCKET/..., for --workdir
#   sesame-flags    further flags, may be empty
set -uo pipefail

metadata() {
  curl --silent --fail --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

readonly home=/opt/sesame
mkdir -p "$home"
cd "$home" || exit 1
exec >> "$home/log" 2>&1
export HOME=${HOME:-/root}
export PATH="$HOME/.local/bin:$PATH"

install() {
  command -v uv || curl -LsSf https://astral.sh/uv/install.sh | sh || return
  gcloud storage cp "$(metadata sesame-source)" source.tar.gz || return
  tar -xzf source.tar.gz || return
  uv venv --allow-existing --python 3.11 venv || return
  uv pip install --python venv/bin/python -e '.[tpu]' || return
  touch installed
}

until [[ -e installed ]] || install; do
  sleep 30
done

config=$(metadata sesame-config)
workdir=$(metadata sesame-workdir)
read -r -a flags <<< "$(metadata sesame-flags || true)"
refused=0
while true; do
  began=$SECONDS
  venv/bin/python -m train.main --config "$config" --workdir "$workdir" \
    "${flags[@]}"
  code=$?
  echo "$(date --utc +%FT%TZ) ended with $code"
  [[ $code == 0 ]] && exit 0
  # 75 is preempted; others were killed, stuck, or lost another host. But what
  # is refused at once, three times, would be refused for ever.
  if [[ $code == 1 ]] && ((SECONDS - began < 600)); then
    refused=$((refused + 1))
  else
    refused=0
  fi
  ((refused < 3)) || exit 1
  sleep 10
done
