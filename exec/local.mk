# The execution backends. Only execution programs and their tests link libexec.a and $(exec_libs);
# libprobe.a, which needs $(probe_libs) alone, is in the planning program too.
noinst_LIBRARIES += libexec.a libprobe.a
libprobe_a_SOURCES = \
  %D%/probe/probe.c %D%/probe/probe.h %D%/probe/probe-private.h \
  %D%/probe/cores.c %D%/probe/cores.h \
  %D%/probe/probe-host.c \
  %D%/probe/probe-nvml.c
libprobe_a_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CPPFLAGS)
probe_libs = $(HWLOC_LIBS) $(DL_LIBS)
if HAVE_HWLOC
libprobe_a_SOURCES += %D%/probe/probe-hwloc.c
else
libprobe_a_SOURCES += %D%/probe/probe-hwloc-none.c
endif
libexec_a_SOURCES =
# What a backend fills in.
libexec_a_SOURCES += \
  %D%/comm.h \
  %D%/device.h \
  %D%/kernels.h %D%/grouped-gemm.h %D%/params.h
# Number formats, exact sums, random numbers.
libexec_a_SOURCES += \
  %D%/number/exact.c %D%/number/exact.h \
  %D%/number/number.c %D%/number/number.h \
  %D%/number/number-small.c \
  %D%/number/random.c %D%/number/random.h \
  %D%/number/wide.h
# Kernels of processors.
libexec_a_SOURCES += \
  %D%/cpu/device-cpu.c \
  %D%/cpu/kernels-cpu-operand.c \
  %D%/cpu/kernels-cpu.c %D%/cpu/kernels-cpu-private.h %D%/cpu/kernels-cpu-experts.h \
  %D%/cpu/kernels-cpu-activation.c \
  %D%/cpu/attend.c %D%/cpu/attend.h %D%/cpu/kernels-cpu-attention.c %D%/cpu/kernels-cpu-attention.h %D%/cpu/kernels-cpu-rope.c \
  %D%/cpu/kernels-cpu-dropout.c \
  %D%/cpu/kernels-cpu-experts.c %D%/cpu/kernels-cpu-grouped.c %D%/cpu/row-map.h \
  %D%/cpu/kernels-cpu-loss.c \
  %D%/cpu/kernels-cpu-norm.c \
  %D%/cpu/kernels-cpu-optimizer.c \
  %D%/cpu/kernels-cpu-positions.c \
  %D%/cpu/kernels-cpu-params.c %D%/cpu/kernels-cpu-quantize.c \
  %D%/cpu/kernels-cpu-row.c \
  %D%/cpu/pool.c %D%/cpu/pool.h
# Collectives, and who is where.
libexec_a_SOURCES += \
  %D%/comm/comm.c \
  %D%/comm/comm-threads.c \
  %D%/comm/late.c %D%/comm/late.h \
  %D%/comm/launch.c %D%/comm/launch.h \
  %D%/comm/rendezvous.c %D%/comm/rendezvous.h \
  %D%/comm/placement.c %D%/comm/placement.h
# A schedule, run.
libexec_a_SOURCES += \
  %D%/data/blend.c %D%/data/blend.h \
  %D%/walk/checkpoint-private.h %D%/walk/checkpoint.h \
  %D%/walk/checkpoint-load.c \
  %D%/walk/checkpoint-save.c \
  %D%/data/data.c %D%/data/data.h \
  %D%/walk/exec.c %D%/walk/exec.h \
  %D%/walk/export.c %D%/walk/export.h \
  %D%/data/indexed.c %D%/data/indexed.h \
  %D%/walk/part.c %D%/walk/part.h \
  %D%/walk/links.c %D%/walk/links.h \
  %D%/walk/runnable.c %D%/walk/runnable.h \
  %D%/walk/source.c %D%/walk/source.h \
  %D%/walk/stop.c %D%/walk/stop.h \
  %D%/walk/stragglers.c %D%/walk/stragglers.h \
  %D%/walk/tensor-file.c %D%/walk/tensor-file.h \
  %D%/data/tokens.c %D%/data/tokens.h \
  %D%/walk/walk.c %D%/walk/walk-private.h \
  %D%/walk/walk-collective.c %D%/walk/walk-issue.h \
  %D%/walk/walk-graph.c %D%/walk/walk-graph.h \
  %D%/walk/walk-load.c \
  %D%/walk/walk-update.c %D%/walk/walk-update.h \
  %D%/walk/walk-params.c \
  %D%/walk/walk-state.c \
  %D%/walk/weight-names.c %D%/walk/weight-names.h \
  %D%/walk/weights.c %D%/walk/weights.h \
  %D%/walk/writer.c %D%/walk/writer.h
# Ops timed one by one.
libexec_a_SOURCES += \
  %D%/bench/bench.c %D%/bench/bench.h \
  %D%/bench/bench-ops.c
libexec_a_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CPPFLAGS) $(ONEDNN_CPPFLAGS) $(MPI_CPPFLAGS)
libexec_a_CFLAGS = $(AM_CFLAGS) $(VECTOR_CFLAGS)
exec_libs = $(BLAS_LIBS) $(ONEDNN_LIBS) $(MPI_LIBS)

if HAVE_BLAS
libexec_a_SOURCES += %D%/cpu/gemm-blas.c %D%/cpu/tiles.h
else
libexec_a_SOURCES += %D%/cpu/gemm-plain.c
endif
if HAVE_ONEDNN
libexec_a_SOURCES += %D%/cpu/gemm-onednn.c %D%/cpu/tiles.h
else
libexec_a_SOURCES += %D%/cpu/gemm-onednn-none.c
endif
if HAVE_MPI
libexec_a_SOURCES += %D%/mpi/comm-mpi.c %D%/mpi/wait.c %D%/mpi/wait.h
else
libexec_a_SOURCES += %D%/mpi/comm-mpi-none.c
endif

# What the false branches above would leave out of the tarball.
EXTRA_DIST += %D%/README.md \
  %D%/probe/probe-hwloc-none.c %D%/probe/probe-hwloc.c \
  %D%/mpi/comm-mpi-none.c %D%/nccl/comm-nccl-none.c %D%/cpu/gemm-blas.c %D%/cpu/gemm-plain.c \
  %D%/cpu/gemm-onednn-none.c %D%/cpu/gemm-onednn.c %D%/cpu/tiles.h %D%/mpi/comm-mpi.c %D%/mpi/wait.c \
  %D%/mpi/wait.h
include %D%/cuda/local.mk
include %D%/nccl/local.mk
