# Two commands matter: `make demo` and `make test`. Both create the environment first if it is not there.
#   make demo PEER=1          also measures torch.compile (minutes)
#   make bench-train PEER=1   training steps: forward, backward, Adam
#   make bench-dynamic PEER=1   sizes that change: compilations, seconds, what free sizes cost
#   make bench-warm PEER=1   the first call of a process, where another one has compiled the program before
#   make bench-layers PEER=1   models of many equal layers: seconds to compile them whole and layer by layer
#   make bench-distributed PEER=1   training steps of one process a GPU
#   make bench-capture   models of many architectures: one graph each? equal to eager? seconds beside torch.compile
#   make test ARGS="-k text"  passes arguments on to pytest
#   make test-libraries   libraries that call torch.compile themselves, with Dovetail in its place
#   make test-torch PYTHON=python3.12 TORCH=2.11.0   tests with another Python and PyTorch (docs/compatibility.md)
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
PEER   ?=
JSON   ?= build/bench.json
COMMA  := ,

BIN   := $(VENV)/bin
READY := $(VENV)/.ready
DEV   := $(VENV)/.ready-dev
# Two test workers share the cores with each other's threads: a thread that waits must not spin.
export OMP_WAIT_POLICY ?= passive

.PHONY: demo test test-libraries test-torch test-gpu sanitize-gpu bench bench-gpu bench-train bench-compile bench-capture bench-dynamic bench-layers bench-warm bench-distributed test-distributed curves page opdb opdb-backward test-checked modules fuzz-python fuzz-aliasing fuzz-images fuzz-attention fuzz-complex fuzz-items fuzz-layers fuzz-constants fuzz-parts fuzz-layouts layouts sweep-devices fuzz-shapes fuzz-turns fuzz-training fuzz-late fuzz-wrappers fuzz-values fuzz-history fuzz-ranks fuzz-distributed fuzz-stale growth minify lint format types clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	@touch $@

$(DEV): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/python -m benchmarks.demo $(if $(PEER),--peer) $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 $(ARGS)

# What calls torch.compile itself, in an environment that takes PyTorch and the rest from that of the tests.
LIBRARIES := .venv-libraries
NAMED := accelerate diffusers lightning peft torchao torchmetrics
NEEDED := lightning-utilities pytorch-lightning psutil pillow requests urllib3 certifi idna charset-normalizer importlib_metadata zipp

test-libraries: $(LIBRARIES)/.ready
	$(LIBRARIES)/bin/python -m pytest -q tests/libraries $(ARGS)

$(LIBRARIES)/.ready: $(READY) constraints.txt
	$(PYTHON) -m venv $(LIBRARIES)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > "$$($(LIBRARIES)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/tests.pth"
	$(LIBRARIES)/bin/python -m pip install --quiet --no-deps -c constraints.txt $(NAMED) $(NEEDED)
	@touch $@

# The constraints without PyTorch's version and Triton's, which goes with it; the rest hold for every Python.
TORCH ?= 2.15.0
OTHER := .venv-$(notdir $(PYTHON))-torch$(TORCH)

test-torch: $(OTHER)/.ready
	$(OTHER)/bin/python -m pytest -q $(ARGS)

$(OTHER)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OTHER)
	grep -v '^torch==\|^triton==' constraints.txt > $(OTHER)/constraints.txt
	$(OTHER)/bin/python -m pip install --quiet -c $(OTHER)/constraints.txt torch==$(TORCH) -e '.[test]'
	@touch $@

bench: $(READY)
	@mkdir -p $(dir $(JSON))
	$(BIN)/python -m benchmarks $(if $(PEER),--peer) --json $(JSON) $(ARGS)

bench-train: $(READY)
	@mkdir -p $(dir $(JSON))
	$(BIN)/python -m benchmarks --training --parts cold steady memory $(if $(PEER),--peer) --json build/training.json $(ARGS)

bench-compile: $(READY)
	$(BIN)/python -m benchmarks.phases $(ARGS)

bench-capture: $(READY)
	@mkdir -p build
	$(BIN)/python -m benchmarks.capture --json build/capture.json $(ARGS)

bench-dynamic: $(READY)
	@mkdir -p build
	$(BIN)/python -m benchmarks.dynamic $(if $(PEER),--peer) --json build/dynamic.json $(ARGS)

bench-layers: $(READY)
	$(BIN)/python -m benchmarks.layers $(if $(PEER),--peer) --json build/layers.json $(ARGS)

bench-warm: $(READY)
	@mkdir -p build
	$(BIN)/python -m benchmarks.warm $(if $(PEER),--peer) --json build/warm.json $(ARGS)

# One process for each CUDA device: replicas, sharded parameters, tensor parallelism.
bench-distributed: $(READY)
	$(BIN)/python -m benchmarks.distributed --contenders eager,dovetail$(if $(PEER),$(COMMA)peer) --json build/distributed.json $(ARGS)

# Training runs beside eager's: their drift against that of float noise, and the plot in docs/numerics.md.
curves: $(READY)
	$(BIN)/python -m benchmarks.curves --svg docs/curves.svg $(ARGS)

# How long the report of a 12-layer model's training takes to open in Chromium, and the pictures of it in docs/seeing.md.
page: $(READY)
	$(BIN)/python -m benchmarks.page --pictures docs $(ARGS)

# Every module of PyTorch's own database, forward and backward; `make test` takes two configurations of each.
modules: $(READY)
	$(BIN)/python -m tests.capture.module_sweep $(ARGS)

# Every configuration of PyTorch's optimizer database, with each way to compute it.
optimizers: $(READY)
	$(BIN)/python -m tests.optim.database $(ARGS)

# On a machine with a CUDA device: programs, CUDA graphs, and a sample of each entry of the operator database.
test-gpu: $(READY)
	$(BIN)/python -m pytest -q tests/gpu tests/codegen_gpu
	OPDB_DEVICE=cuda $(BIN)/python -m tests.opdb.sweep --samples 1 --workers 8 --out build/opdb_gpu.jsonl
	OPDB_DEVICE=cuda $(BIN)/python -m tests.opdb.sweep --backward --samples 1 --workers 8 --out build/opdb_gpu_backward.jsonl

# The programs of tests/distributed in four processes on the CPU, then in one process for each of two GPUs.
test-distributed: $(READY)
	RANKS=4 $(BIN)/python -m pytest -q tests/distributed $(ARGS)
	RANKS_BACKEND=nccl $(BIN)/python -m pytest -q -n 6 --dist loadgroup tests/distributed $(ARGS)

# The first run fills the cache of kernels: compiling them under the sanitizer would take minutes.
sanitize-gpu: $(READY)
	$(BIN)/python -m tests.gpu.sanitized
	PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 $(BIN)/python -m tests.gpu.sanitized

bench-gpu: $(READY)
	@mkdir -p build
	$(BIN)/python -m benchmarks.gpu $(if $(PEER),--peer) --json build/gpu.json $(ARGS)
	$(BIN)/python -m benchmarks.gpu --bandwidth $(if $(PEER),--peer) $(ARGS) --json build/bandwidth.json

opdb: $(READY)
	$(BIN)/python -m tests.opdb.sweep $(ARGS)

# Gradients of every differentiable operator; ARGS="--samples 2" takes minutes, all of it the better part of an hour.
opdb-backward: $(READY)
	$(BIN)/python -m tests.opdb.sweep --backward $(ARGS)

# Kernels that check themselves: the operator database, the fuzzers, whole models and the tests of this under
# config.check_kernels. What is wrong is a KernelFault, or NaN. SAMPLES="" takes every sample of the database.
SAMPLES ?= --samples 2
test-checked: export DOVETAIL_CHECK_KERNELS = 1
test-checked: $(READY)
	@mkdir -p build && rm -f build/checked*.jsonl
	$(BIN)/python -m pytest -q tests/codegen/test_checked.py tests/e2e tests/optim tests/symbolic tests/capture/test_transformers.py
	$(BIN)/python -m tests.opdb.sweep $(SAMPLES) --out build/checked.jsonl $(ARGS)
	$(BIN)/python -m tests.opdb.sweep $(SAMPLES) --backward --out build/checked_backward.jsonl $(ARGS)
	$(BIN)/python -m tests.capture.module_sweep
	$(BIN)/python -m tests.fuzz.check 0 2000
	$(BIN)/python -m tests.fuzz.images
	$(BIN)/python -m tests.fuzz.shapes --count 1000 --jobs 2
	$(BIN)/python -m tests.fuzz.late --count 500 --jobs 2
	$(BIN)/python -m tests.fuzz.values --count 500 --jobs 2
	$(BIN)/python -m tests.fuzz.aliasing --count 5000 --jobs 2
	$(BIN)/python -m tests.fuzz.python --count 2000 --jobs 2

fuzz-python: $(READY)
	$(BIN)/python -m tests.fuzz.python $(ARGS)

# Training steps of random convolutional networks.
fuzz-images: $(READY)
	$(BIN)/python -m tests.fuzz.images $(ARGS)

# Random calls of flex_attention and attention that is written out, with their gradients.
fuzz-attention: $(READY)
	$(BIN)/python -m tests.fuzz.attention $(ARGS)
	$(BIN)/python -m tests.fuzz.written_attention $(ARGS)

# Numbers out of tensors that stay in the graph: programs on them, their gradients and errors.
fuzz-items: $(READY)
	$(BIN)/python -m tests.fuzz.items $(ARGS)

# Tensors of constants, whose numbers capture knows while nothing else is in them.
fuzz-constants: $(READY)
	$(BIN)/python -m tests.fuzz.constants $(ARGS)

# Programs with complex numbers: views, conjugates that are left for later, writes, gradients and hooks.
fuzz-complex: $(READY)
	$(BIN)/python -m tests.fuzz.complex_numbers $(ARGS)

# Programs that take tensors apart and put them together, and their gradients.
fuzz-parts: $(READY)
	$(BIN)/python -m tests.fuzz.parts $(ARGS)

# Layers that are almost equal, each compiled by itself: what they share, and what they must not.
fuzz-layers: $(READY)
	$(BIN)/python -m tests.fuzz.layers $(ARGS)

# Models of many layers in one graph, of which a few are compiled where all are alike.
fuzz-turns: $(READY)
	$(BIN)/python -m tests.fuzz.turns $(ARGS)

# Every operator of the database behind a convolution, where layouts are other than in eager.
fuzz-layouts: $(READY)
	$(BIN)/python -m tests.fuzz.layouts $(ARGS)

# Which operators may be given other layouts, by experiment (with OPDB_DEVICE=cuda: on a GPU), and which
# convolutions oneDNN computes right with the channels last.
layouts: $(READY)
	$(BIN)/python -m tests.layouts.table --samples 2 --write $(ARGS)
	$(BIN)/python -m tests.layouts.convolutions

# All kernels of the tests' programs as machine code for every kind of GPU that is listed, without one.
sweep-devices: $(READY)
	$(BIN)/python -m tests.codegen_gpu.test_other_devices

fuzz-shapes: $(READY)
	$(BIN)/python -m tests.fuzz.shapes --count 5000 --jobs 2 $(ARGS)

fuzz-training: $(READY)
	$(BIN)/python -W ignore -m tests.fuzz.training --count 500 $(ARGS)

fuzz-late: $(READY)
	$(BIN)/python -m tests.fuzz.late --count 2000 --jobs 2 $(ARGS)

fuzz-wrappers: $(READY)
	$(BIN)/python -m tests.fuzz.wrappers --count 2000 $(ARGS)

fuzz-values: $(READY)
	$(BIN)/python -m tests.fuzz.values --count 2000 --jobs 2 $(ARGS)

fuzz-aliasing: $(READY)
	$(BIN)/python -m tests.fuzz.aliasing --count 20000 --jobs 2 $(ARGS)

# Something is changed in random programs, in the next process that shares the cache: it must compile anew.
fuzz-stale: $(READY)
	$(BIN)/python -m tests.fuzz.stale --count 2000 $(ARGS)

fuzz-ranks: $(READY)
	$(BIN)/python -m tests.distributed.faults --runs 200 $(ARGS)

# Training programs of several ranks: layers, wrappers, what is compiled, optimizers, loops.
fuzz-distributed: $(READY)
	$(BIN)/python -m tests.distributed.draws $(ARGS)

# What was compiled before must not show: the texts of all stages, then random calls beside eager.
fuzz-history: $(READY)
	$(BIN)/python -m tests.fuzz.history texts --processes 4
	$(BIN)/python -m tests.fuzz.history steps --steps 20000 --jobs 2 $(ARGS)

# Mistakes put into the compiler, each cut down by `dovetail minify` from 64 operators.
minify: $(READY)
	$(BIN)/python -m tests.minify.faults $(ARGS)

# Memory that stays of functions, recompilations, sizes and calls, and how compiling grows with a program, at full size.
growth: $(READY)
	$(BIN)/python -m tests.e2e.growth $(ARGS)
	$(BIN)/python -m tests.e2e.compile_growth

lint: $(DEV)
	$(BIN)/ruff check .

format: $(DEV)
	$(BIN)/ruff check --fix .

types: $(DEV)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(LIBRARIES) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
