# Entry points. `make demo` and `make test` install what is missing, build what they run, and run it; both are quick the
# second time.
BUILD := build/release
PYTHON := .venv/bin/python
JOBS ?= $(shell nproc)
# CUDA is compiled where a GPU will run it (then for that kind), or with MHLA_CUDA=ON.
CONFIGURE := $(if $(MHLA_CUDA),-DMHLA_CUDA=$(MHLA_CUDA))
NVCC := $(shell command -v nvcc)

.PHONY: help demo test peers gpu-test check fuzz build program configure bootstrap python-package format-check tidy asan tsan \
        cuda bench format clean

help:
	@echo "make demo      build the program and run the demonstration (out/demo/report.html)"
	@echo "make test      build everything and run every test"
	@echo "make peers     language models against lm-evaluation-harness, which this installs"
	@echo "make gpu-test  build everything and run the tests that need a GPU"
	@echo "make check     formatting, clang-tidy, the sanitizer builds, and CUDA code compiles (where nvcc is)"
	@echo "make fuzz      random files and arguments with libFuzzer, SECONDS=60 for each target"
	@echo "make bench     the operator against PyTorch on this machine"
	@echo "make format    format the sources in place"
	@echo "make clean     remove build folders and outputs"

bootstrap:
	@tools/bootstrap.sh

configure: bootstrap
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release $(CONFIGURE)

program: configure
	@cmake --build --preset release -j $(JOBS) --target mhla_program

build: configure
	@cmake --build --preset release -j $(JOBS)

demo: program
	@$(BUILD)/bin/mhla demo

test: build python-package
	@ctest --preset release -j $(JOBS)
	@$(PYTHON) -m pytest -q tests/python

# The package as a user installs it, into .venv; rebuilt when a source changed. The compiler has the name that CMake gives
# it, so that the compiler cache knows what the build above compiled.
python_stamp := .deps/stamps/python-package
python_sources := $(shell find python src/core src/cpu src/cuda src/api src/python src/torch include cmake -type f -not -name '*.so') CMakeLists.txt src/CMakeLists.txt pyproject.toml
python-package: bootstrap $(python_stamp)
$(python_stamp): $(python_sources)
	@CXX="$${CXX:-c++}" CMAKE_ARGS="$(CONFIGURE)" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PYTHON) -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
	@touch $@

gpu-test: build python-package
	@ctest --preset release -L gpu
	@$(PYTHON) -m pytest -q tests/python -m gpu

# A small model on a text of its own, as good as any for this.
peers: program
	@tools/bootstrap.sh --peers
	@tools/peers.sh

check: format-check tidy asan tsan cuda

format-check: bootstrap
	@tools/format.sh --check

format: bootstrap
	@tools/format.sh

tidy: build
	@tools/tidy.sh $(BUILD) $(JOBS)

asan: bootstrap
	@[ -f build/asan/build.ninja ] || cmake --preset asan
	@cmake --build --preset asan -j $(JOBS)
	@tools/asan_tests.sh build/asan $(JOBS)

tsan: bootstrap
	@[ -f build/tsan/build.ninja ] || cmake --preset tsan
	@cmake --build --preset tsan -j $(JOBS) --target test_threads test_data
	@tools/tsan_tests.sh build/tsan

# The targets that need no torch; the others are driven by tools/fuzz.sh --count in any build.
SECONDS := 60
fuzz: bootstrap
	@tools/bootstrap.sh --fuzz
	@[ -f build/fuzz/build.ninja ] || cmake --preset fuzz
	@cmake --build --preset fuzz -j $(JOBS) --target fuzz_targets
	@tools/fuzz.sh --build build/fuzz --seconds $(SECONDS)

# No GPU is needed to compile: the operator and its GPU tests, for one kind of GPU. Nothing runs, so nothing is optimised: a
# fifth of the time.
cuda: bootstrap
ifneq ($(NVCC),)
	@[ -f build/cuda/build.ninja ] || cmake --preset cuda -DMHLA_TORCH=OFF -DMHLA_CUDA_ARCHITECTURES=90a-real \
	  -DCMAKE_CUDA_FLAGS_RELEASE="-O0 --Ofast-compile=max" -DCMAKE_CXX_FLAGS_RELEASE=-O0
	@cmake --build --preset cuda -j $(JOBS) --target mhla test_api
else
	@echo "cuda: no nvcc here, CUDA code not compiled"
endif

bench: program
	@$(BUILD)/bin/mhla bench op

clean:
	rm -rf build out .deps/stamps/python-package
