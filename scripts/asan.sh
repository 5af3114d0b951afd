#!/bin/sh
# The tests of the crate, and those of the package, under AddressSanitizer. A stable compiler has it under a flag for its
# own development; the simulated driver is loaded as it is, so that what it is given and what it hands out are watched
# from outside. What cuirass leaks on purpose, and what Python never frees, is not looked at: the census of the tests
# counts what the driver has.
#
#   scripts/asan.sh           both
#   scripts/asan.sh rust      the crate alone
#   scripts/asan.sh python    the package alone, or the test files that follow
set -eu
cd "$(dirname "$0")/.."
part=${1:-both}
[ $# -eq 0 ] || shift
triple=$(rustc --version --verbose | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:halt_on_error=1

if [ "$part" != python ]; then
    # The gauntlet's children are the same program; the allocator of `allocations` is one of its own.
    cargo test --quiet --target "$triple" -p cuirass-fault -p cuirass-call
    cargo test --quiet --target "$triple" -p cuirass --lib --test device --test context --test stream --test failures \
        --test capture --test memory --test graph_builder --test graph_condition --test graph_mishaps --test graph_threads --test gauntlet
fi
if [ "$part" != rust ]; then
    cargo build --quiet --target "$triple" -p cuirass-py
    # The package as it is, with the library that is watched in the place of the other.
    folder=target/asan/package
    rm -rf "$folder"
    mkdir -p "$folder"
    cp -r python/cuirass "$folder/cuirass"
    cp -f "target/asan/$triple/debug/lib_cuirass.so" "$folder/cuirass/_cuirass.abi3.so"
    cp -r python/tests "$folder/tests"
    [ $# -gt 0 ] || set -- test_buffer.py test_stream.py test_event.py test_reports.py test_reviewers.py test_faults.py \
        test_graph.py test_graph_mishaps.py test_memory_resource.py
    runtime=$(cc -print-file-name=libasan.so)
    cd "$folder"
    # Python's own allocator hides what is freed; children of the tests inherit all of it.
    LD_PRELOAD=$runtime PYTHONMALLOC=malloc PYTHONPATH=$PWD VIRTUAL_ENV=$OLDPWD/.venv CUIRASS_DRIVER=sim \
        "$OLDPWD/.venv/bin/python" -m pytest -q -p no:cacheprovider $(printf 'tests/%s ' "$@")
fi
