# Entry points. `make demo` and `make test` install what is missing, build, and run; both are quick the second time.
BUILD := build/release
PYTHON := .venv/bin/python
JOBS ?= $(shell nproc)
# Where no GPU will run it, the CUDA back end is compiled for one kind of GPU only.
CONFIGURE := $(if $(wildcard /dev/nvidia0),,-DMHLA_CUDA_ARCHITECTURES=90a-real)

.PHONY: help demo test gpu-test check build bootstrap python-package format-check tidy asan bench format clean

help:
	@echo "make demo      build everything and run the demonstration (out/demo/report.html)"
	@echo "make test      build everything and run every test"
	@echo "make gpu-test  build everything and run the tests that need a GPU"
	@echo "make check     formatting, clang-tidy and the sanitizer build"
	@echo "make bench     the operator against PyTorch on this machine"
	@echo "make format    format the sources in place"
	@echo "make clean     remove build folders and outputs"

bootstrap:
	@tools/bootstrap.sh

build: bootstrap
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release $(CONFIGURE)
	@cmake --build --preset release -j $(JOBS)

demo: build
	@$(BUILD)/bin/mhla demo

test: build python-package
	@ctest --preset release -j $(JOBS)
	@$(PYTHON) -m pytest -q tests/python

# The package as a user installs it, into .venv; rebuilt when a source changed.
python_stamp := .deps/stamps/python-package
python_sources := $(shell find python src/core src/cpu src/cuda src/python src/torch include cmake -type f -not -name '*.so') CMakeLists.txt src/CMakeLists.txt pyproject.toml
python-package: bootstrap $(python_stamp)
$(python_stamp): $(python_sources)
	@CMAKE_ARGS="$(CONFIGURE)" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PYTHON) -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
	@touch $@

gpu-test: build python-package
	@ctest --preset release -L gpu
	@$(PYTHON) -m pytest -q tests/python -m gpu

check: format-check tidy asan

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

bench: build
	@$(BUILD)/bin/mhla bench op

clean:
	rm -rf build out .deps/stamps/python-package
