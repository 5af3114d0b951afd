#!/usr/bin/env bash
# A wheel that is optimised by a profile of itself: what benches/bench.py runs through, over the driver that does nothing,
# lies together and is laid out for that.
#
#   scripts/profiled.sh FOLDER    the wheel goes there
#
# It needs the toolchain's llvm-profdata (rustup component add llvm-tools), or another of the same LLVM by LLVM_PROFDATA.
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=$(realpath -m "${1:?the folder that the wheel goes to}")
WORK=$PWD/.build/profile
HOST=$(rustc -vV | sed -n 's/^host: //p')
PROFDATA=${LLVM_PROFDATA:-$(rustc --print sysroot)/lib/rustlib/$HOST/bin/llvm-profdata}
[ -x "$PROFDATA" ] || { echo "there is no $PROFDATA: rustup component add llvm-tools" >&2; exit 1; }

export CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
rm -rf "$WORK" && mkdir -p "$WORK/counts" "$WORK/driver" "$WORK/site"
cargo build --quiet --release -p cuirass-bench-null-driver
cp "${CARGO_TARGET_DIR:-target}"/release/libcuirass_null_driver.so "$WORK/driver/libcuda.so.1"

# For a target of its own, so that build scripts and macros are not counted.
build() { RUSTFLAGS=$1 .venv/bin/maturin build --quiet --release --target "$HOST" --out "$2"; }

build "-Cprofile-generate=$WORK/counts" "$WORK"
.venv/bin/python -m zipfile -e "$WORK"/cuirass-*.whl "$WORK/site"
LD_LIBRARY_PATH=$WORK/driver CUIRASS_DRIVER=gpu PYTHONPATH=$WORK/site \
  .venv/bin/python benches/bench.py --repeats 5 --live 10000 cuirass
"$PROFDATA" merge -o "$WORK/all.profdata" "$WORK"/counts/*.profraw
build "-Cprofile-use=$WORK/all.profdata" "$OUT"
