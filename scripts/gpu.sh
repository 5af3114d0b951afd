#!/usr/bin/env bash
# The tests, the demo and the benchmarks on a machine with a GPU.
#
#   scripts/gpu.sh pack          build everything here into .build/gpu (needs no GPU)
#   scripts/gpu.sh run [STEP…]   run it where the GPU is: rust gauntlet python leaks stress demo ops bench
#                                 cold beside crash (all by default but the stress test, which is stress or crash).
#                                 Steps joined by + run beside each other, each with a log of its own; STEP@1 runs on
#                                 the second GPU: `run bench cold+demo rust+gauntlet+python+leaks@1`
#
# The machine with the GPU needs Python 3.11+ with numpy and pytest, gcc and CUDA 13's toolkit; no Rust.
set -uo pipefail
cd "$(dirname "$0")/.."
PACK=.build/gpu
TARGET=${CARGO_TARGET_DIR:-target}

pack() {
  set -e
  make --no-print-directory setup
  rm -rf "$PACK" && mkdir -p "$PACK/tests" "$PACK/wheel" "$PACK/gauntlet"
  cargo build --quiet --profile gpu -p cuirass-sim-libs
  cp "$TARGET"/gpu/libcuda.so "$PACK/libcuda.so.1"
  cargo test --quiet --profile gpu -p cuirass --no-run --message-format=json |
    .venv/bin/python -c 'import json, shutil, sys
for line in sys.stdin:
    row = json.loads(line)
    if row.get("executable") and row["target"]["kind"] == ["test"]:
        shutil.copy(row["executable"], sys.argv[1] + "/tests/" + row["target"]["name"])' "$PACK"
  cargo build --quiet --profile gpu -p cuirass --example demo
  cp "$TARGET"/gpu/examples/demo "$PACK/demo"
  strip "$PACK"/tests/* "$PACK/demo"
  if cargo build --quiet --release --manifest-path benches/cudarc/Cargo.toml --target-dir "$TARGET/cudarc"; then
    cp "$TARGET"/cudarc/release/libcudarc_native.so "$PACK/"
  fi
  mkdir -p python/cuirass/_sim
  cp "$TARGET"/gpu/libcuda.so python/cuirass/_sim/libcuda.so.1
  ln -sfn libcuda.so.1 python/cuirass/_sim/libcuda.so
  # What is timed is built as it would be shipped.
  export CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_STRIP=true
  cargo build --quiet --release -p cuirass-bench-native
  cp "$TARGET"/release/libcuirass_native.so "$PACK/"
  .venv/bin/maturin build --quiet --release --out "$PACK/wheel"
  # The gauntlet's engine is in no wheel that is shipped.
  .venv/bin/maturin build --quiet --profile gpu --features gauntlet --out "$PACK/gauntlet"
  # Much smaller so; `run` unpacks it.
  tar -C "$PACK" --remove-files -czf "$PACK/tests.tar.gz" tests
  du -sh "$PACK"
}

# A line of the table that is printed last. Steps that run beside others are processes of their own.
TABLE=$(mktemp)
row() { printf '%-28s %s\n' "$1" "$2" >> "$TABLE"; }

run_group() {
  local step device steps=(${1//+/ })
  if [ ${#steps[@]} -eq 1 ] && [[ $1 != *@* ]]; then
    "run_$1"
    return
  fi
  for step in "${steps[@]}"; do
    device=0
    [[ $step == *@* ]] && device=${step#*@}
    (export CUDA_VISIBLE_DEVICES=$device; "run_${step%@*}") > "${OUT:-.}/${step%@*}.log" 2>&1 &
  done
  wait
  for step in "${steps[@]}"; do printf -- '-- %s\n' "$step"; tail -n 25 "${OUT:-.}/${step%@*}.log"; done
}

find_nvrtc() {
  python3 - <<'PY'
import glob, os, site, sysconfig
places = [sysconfig.get_paths()["purelib"], *site.getsitepackages()]
found = [p for s in places for p in glob.glob(os.path.join(s, "nvidia/cu13/lib/libnvrtc.so.13"))]
found += glob.glob("/usr/local/cuda*/lib64/libnvrtc.so.13")
print(found[0] if found else "")
PY
}

run_rust() {
  local test out
  for test in "$PACK"/tests/*; do
    # It has a step of its own.
    [ "$(basename "$test")" = gauntlet ] && continue
    out=$(timeout 240 "$test" --test-threads=1 2>&1)
    local code=$?
    [ $code -eq 0 ] || echo "$out" | tail -40
    row "rust $(basename "$test")" "$(echo "$out" | grep -E '^(test result|gauntlet):' | tail -1 | cut -c1-90) [$code]"
  done
}

# A part of the gauntlet from both languages, about a minute; CUIRASS_GAUNTLET=slice:SEED/ONE_IN, or full, is another.
run_gauntlet() {
  local out code part=${CUIRASS_GAUNTLET:-slice:1/20}
  out=$(CUIRASS_GAUNTLET=$part timeout 580 "$PACK/tests/gauntlet" 2>&1); code=$?
  [ $code -eq 0 ] || echo "$out" | tail -60
  row "gauntlet, Rust" "$(echo "$out" | grep -E '^gauntlet:' | tail -1 | cut -c11-100) [$code]"
  python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site-gauntlet "$PACK"/gauntlet/*.whl
  out=$(CUIRASS_GAUNTLET=$part PYTHONPATH=/tmp/site-gauntlet timeout 580 python3 python/tests/gauntlet 2>&1); code=$?
  [ $code -eq 0 ] || echo "$out" | tail -60
  row "gauntlet, Python" "$(echo "$out" | grep -E '^gauntlet \(Python\):' | tail -1 | cut -c20-110) [$code]"
}

# STRESS_SEEDS side by side.
run_stress() {
  local seed code log=${OUT:-.}/stress.txt
  rm -f "$log".*
  for seed in ${STRESS_SEEDS:-1}; do
    { timeout 580 python3 python/tests/stress.py --seconds "${STRESS_SECONDS:-300}" --seed "$seed" > "$log.$seed" 2>&1
      echo "exit $?" >> "$log.$seed"; } &
  done
  wait
  code=$(grep -l '^exit [1-9]' "$log".* | wc -l)
  grep -l '^exit [1-9]' "$log".* | xargs -r tail -n 40
  row "stress, ${STRESS_SECONDS:-300} s" "exit $code, $(grep -h '^stress:' "$log".* | tr '\n' ' ')"
}

# The stress test with every driver call noted, until it ends or the process crashes: then what the notes say of that.
run_crash() {
  local code folder=/tmp/last-calls driver log=${OUT:-.}/last-calls.txt
  driver=$(ldconfig -p | awk '/libcuda.so.1 / { print $NF; exit }')
  mkdir -p $folder && gcc -O2 -g -shared -fPIC -o $folder/libcuda.so.1 scripts/last-calls/last-calls.c -ldl -lpthread
  rm -f "$log"
  LAST_CALLS_DRIVER=$driver LAST_CALLS_LOG=$log LD_LIBRARY_PATH=$folder:${LD_LIBRARY_PATH:-} \
    timeout 580 python3 python/tests/stress.py --seconds "${STRESS_SECONDS:-300}"; code=$?
  [ -f "$log" ] && python3 scripts/last-calls/tell.py "$log" | tee "${OUT:-.}/last-calls-told.txt" | head -200
  row "stress, every call noted" "exit $code"
}

# Which calls the driver survives beside the begin and end of captures.
run_beside() {
  local code
  gcc -O2 -pthread -I/usr/local/cuda/include facts/measure_beside_capture.c -o "$PACK/beside" -L/usr/local/cuda/lib64/stubs -lcuda
  timeout 200 "$PACK/beside" "${BESIDE_SECONDS:-3}" | tee "${OUT:-.}/beside.txt"; code=${PIPESTATUS[0]}
  row "calls beside captures" "exit $code, $(grep -c 'signal' "${OUT:-.}/beside.txt") cases ended the process"
}

# Where a test ends the process, what comes after its file is run by another one. The gauntlet has a step of its own.
run_python() {
  local log=${OUT:-.}/python.txt files=() part=1 code last at
  files=($(ls python/tests/test_*.py))
  : > "$log"
  while [ ${#files[@]} -gt 0 ]; do
    timeout 560 python3 -m pytest -v --durations=12 -rfE --tb=short -p no:cacheprovider "${files[@]}" > "$log.part" 2>&1; code=$?
    cat "$log.part" >> "$log"
    if [ $code -lt 124 ]; then
      [ $code -eq 0 ] || sed -n '/= FAILURES/,$p; /= ERRORS/,$p' "$log.part" | tail -150
      row "python tests, part $part" "$(tail -1 "$log.part" | tr -d =) [$code]"
      break
    fi
    last=$(grep -oE '^python/tests/test_[a-z_]+\.py::[^ ]+' "$log.part" | tail -1)
    grep -A12 -E '^(Fatal Python error|Current thread)' "$log.part" | head -40
    row "python tests, part $part" "ended in $last: $(grep -c ' PASSED ' "$log.part") passed, $(grep -c ' FAILED ' "$log.part") failed [$code]"
    at=0
    while [ "${files[at]:-}" ] && [ "${files[at]}" != "${last%%::*}" ]; do at=$((at + 1)); done
    files=("${files[@]:at+1}")
    part=$((part + 1))
  done
}

run_demo() {
  local code
  "$PACK/demo" gpu; code=$?
  row "demo, Rust" "exit $code"
  python3 -m cuirass demo --driver gpu; code=$?
  row "demo, Python" "exit $code"
}

run_ops() {
  local code
  timeout 300 python3 crates/cuirass-ptx/tests/ops/record.py --out "${OUT:-.}/expected.jsonl"; code=$?
  row "PTX oracle" "exit $code, $(wc -l < "${OUT:-.}/expected.jsonl" 2>/dev/null) rows"
}

# LEAKS_SHARES processes side by side, each with a share of the kinds.
run_leaks() {
  local shares=${LEAKS_SHARES:-1} cycles=${LEAKS_CYCLES:-20000} share code=0 log=${OUT:-.}/leaks.txt
  rm -f "$log".*
  for share in $(seq "$shares"); do
    { timeout 580 python3 python/tests/leaks.py --cycles "$cycles" --seconds "${LEAKS_SECONDS:-120}" \
      $([ "$shares" -eq 1 ] || echo --share "$share/$shares") > "$log.$share"; echo "exit $?" >> "$log.$share"; } &
  done
  wait
  cat "$log".* | tee "$log"
  code=$(grep -c '^exit [1-9]' "$log")
  row "leaks" "exit $code, $(grep -h '^leaks:' "$log" | tr '\n' ' ')"
}

# Twice: all contenders, and the floor and cuirass by themselves. The floor takes part twice, as c and as c-again: what the
# second seems to cost over the first is what a difference may be without any reason.
run_bench() {
  local own=(c="$PACK/floor.so" c-again="$PACK/floor-again.so" cuirass-rs="$PACK/libcuirass_native.so" cuirass least="$PACK/cold.so") others=(cuda.core cupy nvrtc)
  gcc -O2 -shared -fPIC -pthread -I/usr/local/cuda/include benches/floor.c -o "$PACK/floor.so" -L/usr/local/cuda/lib64/stubs -lcuda
  cp "$PACK/floor.so" "$PACK/floor-again.so"
  gcc -O2 -shared -fPIC -I/usr/local/cuda/include benches/cold/cold.c -o "$PACK/cold.so" -L/usr/local/cuda/lib64/stubs -lcuda
  [ -f "$PACK/libcudarc_native.so" ] && others+=(cudarc="$PACK/libcudarc_native.so")
  timeout 420 python3 benches/bench.py "${own[@]}" "${others[@]}" --live "${BENCH_LIVE:-1000000}" --json "${OUT:-.}/bench.json" 2>&1 | tee "${OUT:-.}/bench.txt"
  row "benchmark" "exit ${PIPESTATUS[0]}, ${OUT:-.}/bench.txt"
  timeout 200 python3 benches/bench.py "${own[@]}" --repeats 15 --json "${OUT:-.}/bench-own.json" 2>&1 | tee "${OUT:-.}/bench-own.txt"
  row "benchmark, without others" "exit ${PIPESTATUS[0]}, ${OUT:-.}/bench-own.txt"
}

run_cold() {
  gcc -O2 -shared -fPIC -I/usr/local/cuda/include benches/cold/cold.c -o "$PACK/cold.so" -L/usr/local/cuda/lib64/stubs -lcuda
  [ -f /tmp/bench_kernels.cubin ] || nvcc -arch=native -cubin -o /tmp/bench_kernels.cubin benches/cold/kernels.cu
  timeout 120 python3 benches/cold/cold.py "$PACK/cold.so" /tmp/bench_kernels.cubin 2>&1 | tee "${OUT:-.}/cold.txt"
  row "calls beside other work" "exit ${PIPESTATUS[0]}, ${OUT:-.}/cold.txt"
  gcc -O2 -I/usr/local/cuda/include benches/cold/added.c -o "$PACK/added" -L/usr/local/cuda/lib64/stubs -lcuda
  timeout 60 "$PACK/added" /tmp/bench_kernels.cubin 2>&1 | tee "${OUT:-.}/added.txt"
  row "calls that cuirass adds" "exit ${PIPESTATUS[0]}, ${OUT:-.}/added.txt"
}

case "${1:-run}" in
  pack) pack ;;
  run)
    shift || true
    [ -d "$PACK/tests" ] || tar -C "$PACK" -xzf "$PACK/tests.tar.gz"
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site "$PACK"/wheel/*.whl
    export PYTHONPATH=/tmp/site CUIRASS_DRIVER=gpu PYTHONUNBUFFERED=1
    CUIRASS_NVRTC=$(find_nvrtc) && export CUIRASS_NVRTC
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    for group in ${@:-bench cold rust gauntlet python leaks demo ops beside}; do run_group "$group"; done
    printf '\n'; cat "$TABLE"
    ! grep -qE '\[[1-9]|exit [1-9]' "$TABLE"
    ;;
  *) sed -n 2,11p "$0"; exit 2 ;;
esac
