#!/usr/bin/env bash
# Builds the binaries of a release, against an old glibc, so that they run on clusters with old distributions.
#
#   scripts/release.sh                       the CPU's and CUDA's, and vim_scan's wheel, into dist/
#   scripts/release.sh --only cpu            one of the three: cpu, cuda or python
#   scripts/release.sh --out /tmp/dist       another folder
#   scripts/release.sh --glibc 2.28          a newer glibc than 2.17, that of CentOS 7
#
# The features are `turbo` (cpu) and `cuda,turbo` (cuda), the profile is release, for every x86-64 processor: kernels
# detect AVX2 and AVX-512 when they run. Each binary is an archive
#
#   vim-train-VERSION-x86_64-linux-gnuGLIBC-{cpu,cuda}.tar.xz
#
# with README, CHANGELOG, licences, THIRD-PARTY.txt (licences of all dependencies), vim-train.cdx.json (an SBOM),
# completions and manual pages. vim_scan, with the feature `cuda`, is a wheel, vim_scan-VERSION-cp310-abi3-*.whl.
# SHA256SUMS has the sums of all. The newest GLIBC_ symbol of each binary is printed,
# and the script fails if it is newer than promised.
#
# Zig's linker and C compiler come from PyPI, in versions that are fixed below, to ~/.cache/vim-train/tools. Also needed:
# Rust, Python 3.9 or newer with venv, git, cmake, nasm, objdump (binutils), xz, 10 GB in the target folder, and time:
# CUDA's takes about 20 minutes on two cores from nothing. No GPU, no CUDA. Nothing is published or uploaded.
#
# The same commit, toolchain and folder should give the same bytes, which no check compares: times are the commit's,
# owners root, and paths are replaced.
# With uncommitted changes, the binary's commit ends in `-dirty`.
set -euo pipefail
cd "$(dirname "$0")/.."

zigbuild=0.24.0 zig=0.17.1
triple=x86_64-unknown-linux-gnu
glibc=2.17
out=dist
variants=(cpu cuda python)

die() { printf 'release.sh: %s\n' "$1" >&2; exit "${2:-1}"; }
value() { [ "$#" -ge 2 ] || die "$1 needs a value; see --help" 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      value "$@"
      case $2 in cpu | cuda | python) variants=("$2") ;; *) die "--only takes cpu, cuda or python, not '$2'" 2 ;; esac
      shift ;;
    --out) value "$@"; out=$2; shift ;;
    --glibc)
      value "$@"
      [[ $2 =~ ^2\.[0-9]+$ ]] || die "--glibc takes a version such as 2.17, not '$2'" 2
      glibc=$2; shift ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit ;;
    *) die "unknown argument '$1'; see --help" 2 ;;
  esac
  shift
done

missing=()
for tool in cargo python3 git cmake nasm objdump xz; do
  command -v "$tool" > /dev/null || missing+=("$tool")
done
[ "${#missing[@]}" -eq 0 ] || die "install ${missing[*]} first (Debian: apt install python3-venv cmake nasm binutils xz-utils)"

tools=$HOME/.cache/vim-train/tools/zig-$zig-$zigbuild
if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet "cargo-zigbuild==$zigbuild" "ziglang==$zig"
fi
zig_folder=$("$tools/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent)')
export PATH="$tools/bin:$PATH"

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target" "$out"
target=$(realpath "$target") out=$(realpath "$out")
export CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0
# Paths of this machine in the messages of panics would differ from one builder to the next.
cargo_home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
prefix=--remap-path-prefix
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f%s\x1f%s' "$prefix=$cargo_home=/cargo" "$prefix=$PWD=/vim-train" "$prefix=$target=/target")
export CARGO_ENCODED_RUSTFLAGS
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
VIM_TRAIN_COMMIT=$(git rev-parse HEAD)
[ -z "$(git status --porcelain --untracked-files=no)" ] || VIM_TRAIN_COMMIT+=-dirty
export SOURCE_DATE_EPOCH VIM_TRAIN_COMMIT
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints what the binary $1 needs of the system, and fails if its glibc is newer than promised.
check_glibc() {
  local newest libraries
  newest=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  libraries=$(objdump -p "$1" | awk '$1 == "NEEDED" { printf " %s", $2 }')
  printf 'release.sh: %s requires %s, promised is GLIBC_%s; libraries:%s\n' "$2" "$newest" "$glibc" "$libraries"
  [ "$(printf '%s\n' "$newest" "GLIBC_$glibc" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] ||
    die "$2 requires $newest, newer than the promised GLIBC_$glibc"
}

# Builds the variant $1 and packs it.
release() {
  local features=turbo name=vim-train-$version-x86_64-linux-gnu$glibc-$1 folder
  [ "$1" = cpu ] || features=cuda,turbo
  folder=$scratch/$name
  mkdir -p "$folder/completions" "$folder/man/man1"
  cargo zigbuild --release --locked --package vim-train --features "$features" --target "$triple.$glibc"
  cp "$target/$triple/release/vim-train" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$folder/"
  check_glibc "$folder/vim-train" "$1"

  local binary=$folder/vim-train completions=$folder/completions
  # The names that each shell expects.
  "$binary" completions bash > "$completions/vim-train.bash"
  "$binary" completions zsh > "$completions/_vim-train"
  "$binary" completions fish > "$completions/vim-train.fish"
  "$binary" completions elvish > "$completions/vim-train.elv"
  "$binary" completions powershell > "$completions/_vim-train.ps1"
  "$binary" man "$folder/man/man1" > /dev/null
  scripts/describe_release.py --features "$features" --target "$triple" --zig "$zig_folder" --out "$folder"

  tar --create --directory "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w,u+w \
    --mtime="@$SOURCE_DATE_EPOCH" --format=ustar "$name" | xz -6 > "$out/$name.tar.xz"
}

# Builds the wheel of vim_scan.
wheel() {
  cargo zigbuild --release --locked --package vim-scan-py --features cuda --target "$triple.$glibc"
  check_glibc "$target/$triple/release/lib_native.so" vim_scan
  scripts/pack_wheel.py "$target/$triple/release/lib_native.so" -o "$out"
}

for variant in "${variants[@]}"; do
  if [ "$variant" = python ]; then wheel; else release "$variant"; fi
done
cd "$out"
shopt -s nullglob
sha256sum -- "vim-train-$version"-*.tar.xz "vim_scan-$version"-*.whl | tee SHA256SUMS
printf 'release.sh: wrote %s of commit %s to %s\n' "${variants[*]}" "$VIM_TRAIN_COMMIT" "$out"
