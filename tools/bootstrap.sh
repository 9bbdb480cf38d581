#!/usr/bin/env bash
# Installs what the build needs and nothing else: system packages with apt (Debian 12 or a relative), Python packages
# into .venv, third-party headers into .deps/include, the libraries of SentencePiece and cpp-httplib into .deps/lib,
# GoogleTest's sources into .deps/googletest. Finished steps leave a stamp and are not repeated. With --fuzz also clang,
# for the preset of that name; with --peers lm-evaluation-harness into .deps/peers, on top of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.13.0
apt_packages=(build-essential cmake ninja-build ccache python3-venv python3-dev
              libcli11-dev nlohmann-json3-dev libfmt-dev libgtest-dev libpng-dev libjpeg-dev zlib1g-dev
              libsentencepiece-dev libcpp-httplib-dev libopenmpi-dev openmpi-bin)
python_packages=("torch==$torch_version" numpy==2.2.6 pytest==8.4.2 setuptools==80.9.0 wheel==0.45.1 scikit-build-core==1.1.1
                 clang-format==19.1.7 clang-tidy==22.1.8 ruff==0.14.0)
headers=(CLI nlohmann fmt sentencepiece_processor.h httplib.h brotli)
fuzz_packages=(clang-19 libclang-rt-19-dev)
peer_packages=(lm_eval==0.4.13)

say() { printf 'bootstrap: %s\n' "$*" >&2; }

# run_once NAME DESCRIPTION COMMAND...: COMMAND runs only when this script changed since it last succeeded.
stamp_dir=.deps/stamps
mkdir -p "$stamp_dir"
run_once() {
  local stamp="$stamp_dir/$1" description="$2"
  shift 2
  if [[ -f "$stamp" && ! tools/bootstrap.sh -nt "$stamp" ]]; then return; fi
  say "$description"
  "$@"
  touch "$stamp"
}

# install_system_packages PACKAGE...
install_system_packages() {
  if ! command -v apt-get > /dev/null; then
    say "no apt-get here; please install the equivalents of: $*"
    return
  fi
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then return; fi
  local as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
}

install_python_packages() {
  [[ -x .venv/bin/python ]] || python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${python_packages[@]}"
}

collect_headers() {
  local header
  mkdir -p .deps/include
  for header in "${headers[@]}"; do
    [[ -e "/usr/include/$header" ]] || { say "'$header' not found under /usr/include"; return 1; }
    cp -rL "/usr/include/$header" .deps/include/
  done
  cp -rL /usr/include/openssl .deps/include/
  cp -L "/usr/include/$(gcc -print-multiarch)"/openssl/*.h .deps/include/openssl/
}

# For machines where nothing can be installed; elsewhere the installed library is used.
collect_sentencepiece() {
  local library
  library=$(compgen -G "/usr/lib/*/libsentencepiece.so") || { say "no libsentencepiece.so under /usr/lib"; return; }
  mkdir -p .deps/lib
  cp -L "$library" "$library.0" .deps/lib/
}

# The same for cpp-httplib, with what it needs.
collect_httplib() {
  local library
  library=$(compgen -G "/usr/lib/*/libcpp-httplib.so") || { say "no libcpp-httplib.so under /usr/lib"; return; }
  mkdir -p .deps/lib
  cp -L "$library" .deps/lib/
  ldd "$library" | awk '/libssl|libcrypto|libbrotli/ {print $3}' | xargs -I{} cp -L {} .deps/lib/
  cp -L "$library" ".deps/lib/$(objdump -p "$library" | awk '/SONAME/ {print $2}')"
}

# The same for the tests.
collect_googletest() {
  [[ -d /usr/src/googletest/googletest ]] || { say "no GoogleTest sources under /usr/src; tests need it installed"; return; }
  cp -rL /usr/src/googletest/googletest .deps/
}

# A Python of its own that also sees the packages of .venv.
install_peers() {
  python3 -m venv .deps/peers
  local own
  own=$(.deps/peers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$own/main.pth"
  .deps/peers/bin/python -m pip install --quiet --disable-pip-version-check "${peer_packages[@]}"
}

run_once system "system packages: ${apt_packages[*]}" install_system_packages "${apt_packages[@]}"
run_once python "Python packages into .venv: ${python_packages[*]}" install_python_packages
run_once headers "third-party headers into .deps/include: ${headers[*]}" collect_headers
run_once sentencepiece "SentencePiece's library into .deps/lib" collect_sentencepiece
run_once httplib "cpp-httplib's library into .deps/lib" collect_httplib
run_once googletest "GoogleTest sources into .deps/googletest" collect_googletest
if [[ "${1:-}" == --peers ]]; then
  run_once peers "other programs to compare with, into .deps/peers: ${peer_packages[*]}" install_peers
fi
if [[ "${1:-}" == --fuzz ]]; then
  run_once fuzz "system packages: ${fuzz_packages[*]}" install_system_packages "${fuzz_packages[@]}"
fi
