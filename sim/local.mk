noinst_LIBRARIES += libsim.a
libsim_a_SOURCES = \
  %D%/cost/adjust.c %D%/cost/adjust.h \
  %D%/cost/doubt.c %D%/cost/doubt.h \
  %D%/fast/blocks.c %D%/fast/blocks-long.c %D%/fast/blocks-long.h %D%/fast/blocks-state.c %D%/fast/blocks.h %D%/fast/blocks-private.h \
  %D%/fast/exposed.c %D%/fast/exposed.h \
  %D%/fit/calibrate.c %D%/fit/calibrate.h \
  %D%/cost/cost.c %D%/cost/cost.h \
  %D%/cost/cost-calls.c \
  %D%/cost/cost-collective.c \
  %D%/cost/cost-compute.c \
  %D%/cost/cost-defaults.c \
  %D%/cost/cost-params.h \
  %D%/cost/cost-launch.c \
  %D%/cost/cost-private.h \
  %D%/cost/cost-timed.c \
  %D%/fast/slowdown-bound.c %D%/fast/slowdown-bound.h \
  %D%/engine.c %D%/engine.h \
  %D%/cost/measurements.c %D%/cost/measurements.h \
  %D%/fast/fold.c %D%/fast/fold.h \
  %D%/fast/footprint.c %D%/fast/footprint.h %D%/fast/footprint-private.h \
  %D%/fast/measure.c %D%/fast/measure.h \
  %D%/fast/arena-fit.c %D%/fast/arena-fit.h \
  %D%/record-stream.c %D%/record-stream.h \
  %D%/fast/leap.c %D%/fast/leap.h \
  %D%/memory.c %D%/memory.h \
  %D%/fast/program.c %D%/fast/program.h \
  %D%/fast/recall.c %D%/fast/recall.h \
  %D%/fast/rejoin.c %D%/fast/rejoin.h \
  %D%/sharing.c %D%/sharing.h \
  %D%/sim.c %D%/sim.h \
  %D%/fast/tally.c %D%/fast/tally.h \
  %D%/cost/timings.c %D%/cost/timings.h
EXTRA_DIST += %D%/README.md
