# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts that build something: finds or installs what is missing, and builds presets.
#   ek_setup [test] [cuda] [lint]   sets PY (the Python to run with) and, with `cuda`, CUDACXX; installs what lacks
#   ek_build <preset> [target]      configures build/<preset> and builds it, or one target of it
# Nothing is fetched when everything is there already, so a machine without network works. What comes from PyPI goes
# into .venv; a Python that has NumPy (and pytest, for tests) is used as it is.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT"
VENV="$ROOT/.venv"
PY=

say() { printf '\n== %s\n' "$*"; }
die() { printf '\neinkorn: %s\n' "$*" >&2; exit 1; }

# at_least <have> <want>: dotted versions
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

lacking_modules() { # <python> <module>...: prints those that it has not
  local python="$1"
  shift
  "$python" -c "import importlib.util as u, sys; print(*(m for m in sys.argv[1:] if u.find_spec(m) is None))" "$@"
}

has_modules() { # <python> <module>...
  local lacking
  lacking="$(lacking_modules "$@")" && [ -z "$lacking" ]
}

find_python() { # prints the first Python from 3.11 on
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
}

find_nvcc() { # prints the first nvcc from 12.9 on
  local nvcc version
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" \
    /usr/local/cuda/bin/nvcc "$VENV"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    version="$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
    if at_least "${version:-0}" 12.9; then
      echo "$nvcc"
      return
    fi
  done
}

install_packages() { # the missing Debian packages, or their names and the end
  local command="apt-get install -y --no-install-recommends $*"
  if ! command -v apt-get >/dev/null; then
    die "missing: $*. Install the packages of these (Debian) names with your package manager and run this again."
  fi
  [ "$(id -u)" = 0 ] || die "missing packages: $*. Run as root:  $command"
  say "installing Debian packages: $*"
  # ccache, pkg-config and a BLAS (for the rows that call one) are not needed, but welcome: they come along once apt is
  # at work anyway.
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && $command ccache pkg-config libopenblas0-pthread; } || die "apt-get failed; needed: $*"
}

check_tools() { # <1 if a venv is needed>
  local missing=() python name
  command -v c++ >/dev/null && command -v cc >/dev/null || missing+=(build-essential)
  command -v cmake >/dev/null || [ -x "$VENV/bin/cmake" ] || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  python="$(find_python)"
  if [ -z "$python" ]; then
    # Beside one that is too old, the oldest that will do: where there are newer ones, it is among them.
    python=python3
    command -v python3 >/dev/null && say "Python 3.11 or newer is needed; python3 is $(python3 -V 2>&1)" && python=python3.11
    missing+=("$python" "$python-dev" "$python-venv")
  else
    # The packages have the name it was found by: python3-dev beside an old python3 has the headers of the old one.
    name="${python##*/}"
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || missing+=("$name-dev")
    [ "$1" = 0 ] || has_modules "$python" ensurepip venv || missing+=("$name-venv")
  fi
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

cmake_is_new() { # enough for the presets
  local version
  version="$(cmake --version 2>/dev/null | sed -n 's/cmake version \([0-9.]*\).*/\1/p')"
  at_least "${version:-0}" 3.24
}

venv_install() { # <requirements file> <what is missing without it>: into .venv, once per content of the file
  local file="$1" missing="$2" stamp sum
  stamp="$VENV/.installed-$(basename "$file")"
  sum="$(sha256sum <"$file")"
  if ! "$VENV/bin/python" -c '' 2>/dev/null; then
    say "making .venv"
    rm -rf "$VENV"
    "$(find_python)" -m venv "$VENV" || die "could not make $VENV"
  fi
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ] && return
  say "installing $file into .venv"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check -r "$file" ||
    die "missing: $missing. pip could not install $file: is there a network?
  Without one, install what is missing by other means and run this again. (tools/gpu-check --build-only, on a machine that
  has a network, puts a copy of pytest into build/cuda/site, which is found where that folder is taken along.)"
  echo "$sum" >"$stamp"
}

ek_setup() {
  local test=0 cuda=0 lint=0 want files=() missing=() modules=(numpy) system venv
  for want in "$@"; do
    case "$want" in
      test) test=1 modules+=(pytest) ;;
      cuda) cuda=1 ;;
      lint) lint=1 ;;
    esac
  done

  # Python: the system's if it has all that is needed (a venv that is already there, if it does not).
  system="$(find_python)"
  # A machine without pytest and without network can be sent one: tools/gpu-check puts a copy into its build folder.
  if [ $test = 1 ] && [ -d build/cuda/site/pytest ] && [ -n "$system" ] && ! has_modules "$system" pytest; then
    export PYTHONPATH="$ROOT/build/cuda/site${PYTHONPATH:+:$PYTHONPATH}"
  fi
  if [ -n "$system" ] && has_modules "$system" "${modules[@]}"; then
    PY="$system"
  else
    files+=(tools/requirements.txt)
    [ -z "$system" ] || modules=($(lacking_modules "$system" "${modules[@]}"))
    missing+=("${modules[*]} (of ${system:-Python})")
  fi
  if [ $lint = 1 ]; then
    files+=(tools/requirements-lint.txt)
    missing+=("clang-format and ruff")
  fi
  if [ $cuda = 1 ] && [ -z "$(find_nvcc)" ]; then
    files+=(tools/requirements-cuda.txt)
    missing+=("nvcc from 12.9 on")
  fi
  venv=$((${#files[@]} > 0))
  if command -v cmake >/dev/null && ! cmake_is_new; then venv=1; fi  # it comes from PyPI then
  check_tools $venv
  if ! cmake_is_new; then
    files+=(tools/requirements-build.txt)
    missing+=("CMake from 3.24 on")
    export PATH="$VENV/bin:$PATH"
  fi

  local i
  for i in ${files[@]+"${!files[@]}"}; do venv_install "${files[i]}" "${missing[i]}"; done
  [ -n "$PY" ] || PY="$VENV/bin/python"
  if [ $cuda = 1 ]; then
    CUDACXX="$(find_nvcc)"
    export CUDACXX
  fi
  return 0
}

ek_build() { # <preset> [target]
  local preset="$1" target="${2:-all}" dir="build/$1" fresh=() home nvcc
  # A folder that came from elsewhere, or whose nvcc is gone, is configured anew.
  if [ -f "$dir/CMakeCache.txt" ]; then
    home="$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt")"
    nvcc="$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$dir/CMakeCache.txt")"
    if [ "$home" != "$ROOT" ] || { [ -n "$nvcc" ] && [ "$nvcc" != "${CUDACXX:-}" ]; }; then fresh=(--fresh); fi
  fi
  say "building $dir"
  mkdir -p "$dir"
  if ! cmake --preset "$preset" ${fresh[@]+"${fresh[@]}"} -DPython_EXECUTABLE="$PY" >"$dir/configure.log" 2>&1; then
    cat "$dir/configure.log"
    die "CMake could not configure preset $preset"
  fi
  sed -n 's/^-- einkorn: //p' "$dir/configure.log"
  cmake --build "$dir" --target "$target" || die "the build of preset $preset failed"
}
