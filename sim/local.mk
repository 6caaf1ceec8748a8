noinst_LIBRARIES += libsim.a
libsim_a_SOURCES = \
  %D%/cost.c %D%/cost.h \
  %D%/cost-collective.c \
  %D%/cost-compute.c \
  %D%/cost-defaults.c \
  %D%/cost-params.h \
  %D%/cost-private.h \
  %D%/engine.c %D%/engine.h \
  %D%/measurements.c %D%/measurements.h \
  %D%/memory.c %D%/memory.h \
  %D%/sim.c %D%/sim.h
EXTRA_DIST += %D%/README.md
