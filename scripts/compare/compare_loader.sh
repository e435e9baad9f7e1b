#!/usr/bin/env bash
# The transform of vim-data and those of Pillow, timm and torch's DataLoader on one core, side by side.
#
#   scripts/compare/compare_loader.sh                       everything; installs torch, which is large
#   scripts/compare/compare_loader.sh --no-torch            Pillow alone
#   scripts/compare/compare_loader.sh --rounds 6            measures 6 times by turns; the best of each case counts
#   scripts/compare/compare_loader.sh --out measured        keeps measured/ours.jsonl and theirs.jsonl
#
# Needs cargo, cmake, nasm and a C compiler; and Python, in an environment of its own that it makes in the
# user's cache folder from PyPI (PYTHON=path takes one that has pillow, torch, torchvision and timm instead).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }
fail() { echo "error: $1" >&2; exit "${2:-1}"; }

rounds=4 out='' torch=yes
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --no-torch) torch=no; shift ;;
    --rounds | --out)
      [ $# -ge 2 ] || fail "$1 needs a value" 2
      case "$1" in
        --rounds) rounds=$2 ;;
        --out) out=$2 ;;
      esac
      shift 2 ;;
    *) fail "unknown argument $1; --help says what there is" 2 ;;
  esac
done

python=${PYTHON:-}
if [ -z "$python" ]; then
  environment=${XDG_CACHE_HOME:-$HOME/.cache}/vim-train/peer-loader
  python=$environment/bin/python
  [ -x "$python" ] || python3 -m venv "$environment"
  # Later versions of Pillow refuse what timm asks of `posterize`.
  packages=(numpy 'pillow<11')
  [ "$torch" = no ] || packages+=(torch torchvision timm)
  "$python" -m pip install --quiet "${packages[@]}"
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=${out:-$scratch/out}
mkdir -p "$out"
rm -f "$out"/{ours,theirs}.jsonl

cd "$here/../.."
cargo build --release --locked -p vim-data --features turbo --example transform_speed
ours=${CARGO_TARGET_DIR:-target}/release/examples/transform_speed
"$python" "$here/peer_loader.py" make "$scratch/images"
flags=()
[ "$torch" = yes ] || flags+=(--no-torch)
for ((round = 0; round < rounds; round++)); do
  "$ours" "$scratch/images" 2 >>"$out/ours.jsonl"
  "$python" "$here/peer_loader.py" time "$scratch/images" --rounds 2 ${flags[@]+"${flags[@]}"} >>"$out/theirs.jsonl"
done
"$python" "$here/peer_loader.py" table "$out/ours.jsonl" "$out/theirs.jsonl"
