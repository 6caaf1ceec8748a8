noinst_LIBRARIES += libsim.a
libsim_a_SOURCES = \
  %D%/cost.c %D%/cost.h \
  %D%/cost-defaults.c \
  %D%/engine.c %D%/engine.h \
  %D%/memory.c %D%/memory.h \
  %D%/sim.c %D%/sim.h
EXTRA_DIST += %D%/README.md
