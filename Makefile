# The one command: `make test`. Everything that it needs, it sets up.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SIM := python/cuirass/_sim

export LIBCLANG_PATH := $(abspath $(VENV))/lib/libclang
export CUIRASS_NVRTC := $(abspath $(VENV))/lib/libnvrtc/libnvrtc.so.13
export CUIRASS_SIM_LIBRARY := $(abspath target)/debug/libcuda.so

.PHONY: help setup build demo test test-rust test-python gauntlet lint check fmt gen soak asan wheel clean

help:
	@echo "make demo    the main job, on a GPU or on the simulated device"
	@echo "make test    everything that CI runs (make lint, make test-rust, make test-python are its parts)"
	@echo "make gauntlet  every call of every operation made to fail, from Rust and from Python; planted mistakes found"
	@echo "make soak    the long sweeps, in full, ten minutes of the stress test, and make asan"
	@echo "make asan    the tests of the crate and the package under AddressSanitizer"
	@echo "make gen     write the generated files anew"
	@echo "make wheel   an optimised wheel in dist/"

$(VENV)/ready: requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	ln -sfn "$$($(BIN)/python -c 'import clang, os; print(os.path.join(clang.__path__[0], "native"))')" $(VENV)/lib/libclang
	ln -sfn "$$($(BIN)/python -c 'import nvidia.cu13, os; print(os.path.join(nvidia.cu13.__path__[0], "lib"))')" $(VENV)/lib/libnvrtc
	touch $@

setup: $(VENV)/ready

# The simulated driver, and the package with it and with the engine of the gauntlet, which no wheel that is shipped has. The real driver is looked for at run time and needs no building.
build: $(VENV)/ready
	cargo build --quiet -p cuirass-sim-libs
	mkdir -p $(SIM)
	cmp -s target/debug/libcuda.so $(SIM)/libcuda.so.1 || cp target/debug/libcuda.so $(SIM)/libcuda.so.1
	ln -sfn libcuda.so.1 $(SIM)/libcuda.so
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --features gauntlet

demo: build
	$(BIN)/python -m cuirass demo

test: lint test-rust test-python

# Both parts run twice: on the simulated driver as it is, and on the oldest one that is supported. The compiler is newer
# than that one, which has to take its PTX all the same.
OLDEST := 12.0

test-rust: build
	@echo "Rust, on the simulated driver as it is (CUDA 13.0, or what CUIRASS_SIM says):"
	cargo test --quiet --workspace --exclude cuirass-py
	cargo test --quiet -p cuirass-fault --features tracing
	cargo run --quiet --example demo -p cuirass sim
	@echo "Rust, on a simulated driver of CUDA $(OLDEST):"
	CUIRASS_SIM="driver=$(OLDEST),ptx=any,quiet=1" cargo test --quiet -p cuirass
	CUIRASS_SIM="driver=$(OLDEST),ptx=any,quiet=1" cargo run --quiet --example demo -p cuirass sim

# What `make test-rust` and `make test-python` run a part of (CUIRASS_GAUNTLET=slice:SEED chooses another).
gauntlet: build
	CUIRASS_GAUNTLET=full cargo test --quiet -p cuirass --test gauntlet
	CUIRASS_GAUNTLET=full $(BIN)/python python/tests/gauntlet
	cargo test --quiet -p cuirass --test planted -- --ignored --nocapture

# What `make soak` runs all of.
PARALLEL := $(addprefix python/tests/test_,stream.py event.py device.py context.py buffer.py launch.py graph.py \
	memory_resource.py program.py)

test-python: build
	@echo "Python, on the simulated driver as it is (CUDA 13.0, or what CUIRASS_SIM says):"
	$(BIN)/python -m pytest -q python/tests
	@echo "Python, each test on four threads at once:"
	$(BIN)/python -m pytest -q -rN --parallel-threads=4 --skip-thread-unsafe=True $(PARALLEL)
	@echo "Python, on a simulated driver of CUDA $(OLDEST):"
	CUIRASS_SIM="devices=2,driver=$(OLDEST),ptx=any,quiet=1" $(BIN)/python -m pytest -q python/tests

lint: $(VENV)/ready
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets --features cuirass-py/gauntlet -- -D warnings
	cargo xtask gen --check
	cargo xtask families --check
	cargo xtask tree --check
	cargo xtask instructions --check
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --exclude cuirass-py --exclude xtask
	$(BIN)/ruff check --quiet python
	$(BIN)/ruff format --quiet --check python

soak: build asan
	CUIRASS_SOAK=1 $(MAKE) test-rust test-python
	$(BIN)/python -m pytest -q -rN --parallel-threads=4 --iterations=5 --skip-thread-unsafe=True python/tests
	$(BIN)/python python/tests/stress.py --seconds 600 --seed $$(date +%j)
	$(BIN)/python python/tests/leaks.py --cycles 100000

asan: build
	scripts/asan.sh

gen: $(VENV)/ready
	cargo xtask gen

fmt: $(VENV)/ready
	cargo fmt --all
	$(BIN)/ruff format --quiet python

wheel: export CARGO_PROFILE_RELEASE_LTO := fat
wheel: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 1
wheel: $(VENV)/ready
	cargo build --quiet --release -p cuirass-sim-libs
	mkdir -p $(SIM)
	cp target/release/libcuda.so $(SIM)/libcuda.so.1
	ln -sfn libcuda.so.1 $(SIM)/libcuda.so
	$(BIN)/maturin build --release --quiet --out dist

clean:
	cargo clean
	rm -rf $(VENV) $(SIM) dist
