# Collectives on GPUs. NCCL is loaded when it is called; tests play it instead.
nccl_sources = \
  %D%/comm-nccl.c %D%/comm-nccl.h %D%/comm-nccl-private.h %D%/comm-nccl-try.h \
  %D%/comm-nccl-host.c \
  %D%/comm-nccl-memory.c \
  %D%/comm-nccl-open.c \
  %D%/comm-nccl-roll.c
if HAVE_NCCL
noinst_LIBRARIES += libexecnccl.a
libexecnccl_a_SOURCES = $(nccl_sources) %D%/nccl-calls.c
libexecnccl_a_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
endif
EXTRA_DIST += $(nccl_sources) %D%/nccl-calls.c
