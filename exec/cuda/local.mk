# CUDA kernels, compiled wherever the toolkit is. NVCCFLAGS belongs to the user. AM_NVCCFLAGS has the
# flags that results depend on: no contraction, and IEEE division and square root, which are nvcc's
# defaults.
SUFFIXES = .cu
AM_NVCCFLAGS = -std=c++17 -fmad=false -Xcompiler -Wall,-ffp-contract=off $(NVCC_WERROR) \
  -diag-suppress 1217 # a warning about an attribute in GLib's headers

AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
# $(@D) may not be there yet; -pthread, in GLib's flags on some systems, is unknown to nvcc.
.cu.o:
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && \
	$(NVCC) $(DEFS) $(DEFAULT_INCLUDES) $(GLIB_CFLAGS:-pthread=) $(AM_NVCCFLAGS) $(NVCCFLAGS) \
	  -MD -MT $@ -MF $(@:.o=.cu.d) -c $< -o $@

cuda_sources = \
  %D%/kernels/attention.cu \
  %D%/kernels/attention-softmax.cu \
  %D%/kernels/dropout.cu \
  %D%/kernels/elementwise.cu \
  %D%/kernels/embedding.cu \
  %D%/kernels/expert-bias.cu \
  %D%/kernels/experts.cu \
  %D%/kernels/gemm-plain.cu \
  %D%/kernels/head-norm.cu \
  %D%/kernels/latent-rope.cu \
  %D%/kernels/loss.cu \
  %D%/kernels/adam-fp8.cu \
  %D%/kernels/norm.cu \
  %D%/kernels/norm-bwd.cu \
  %D%/kernels/optimizer.cu \
  %D%/kernels/param.cu \
  %D%/kernels/quantize.cu \
  %D%/kernels/quantize-128x128.cu \
  %D%/kernels/router.cu \
  %D%/kernels/row-map.cu \
  %D%/kernels/sum.cu
cuda_objects = $(cuda_sources:.cu=.o)
if HAVE_CUDA
noinst_LIBRARIES += libcudakernels.a
libcudakernels_a_SOURCES =
libcudakernels_a_LIBADD = $(cuda_objects)
libcudakernels_a_DEPENDENCIES = $(cuda_objects)
-include $(cuda_objects:.o=.cu.d)
endif

EXTRA_DIST += %D%/README.md $(cuda_sources) %D%/kernels/experts.h %D%/kernels/kernels.h %D%/kernels/layers.h %D%/kernels/scores.h \
  %D%/kernels/activation.cuh %D%/kernels/adam.cuh %D%/kernels/exact.cuh %D%/kernels/launch.cuh %D%/kernels/narrow.cuh %D%/kernels/params.cuh %D%/kernels/parts.cuh %D%/kernels/places.cuh %D%/kernels/patch.cuh \
  %D%/kernels/powers.cuh %D%/kernels/random.cuh %D%/kernels/reduce.cuh %D%/kernels/row-map.cuh %D%/kernels/scores.cuh
CLEANFILES += $(cuda_objects) $(cuda_objects:.o=.cu.d)

# The host code that issues the kernels, in plain C. Tests compile it with the fake device's headers.
cuda_host_sources = \
  %D%/algos.c %D%/algos.h \
  %D%/attention-batched.c %D%/attention-batched.h \
  %D%/attention-fused.h \
  %D%/attention-operands.h \
  %D%/comm-cuda.c \
  %D%/cuda-check.c %D%/cuda-check.h \
  %D%/device-cuda.c %D%/device-cuda.h %D%/device-private.h \
  %D%/gemm-batched.c %D%/gemm-batched.h \
  %D%/gemm-grouped.c %D%/gemm-grouped.h \
  %D%/gemm-lt.c %D%/gemm-lt.h \
  %D%/graph.c \
  %D%/kernels-cuda.c \
  %D%/lt.c %D%/lt.h \
  %D%/kernels/sum.h
EXTRA_DIST += $(cuda_host_sources) %D%/attention-fused.c %D%/attention-fused-none.c
if HAVE_CUDA
noinst_LIBRARIES += libexeccuda.a
libexeccuda_a_SOURCES = $(cuda_host_sources)
libexeccuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
if !HAVE_NCCL
libexeccuda_a_SOURCES += exec/nccl/comm-nccl-none.c
endif
if HAVE_CUDNN
libexeccuda_a_SOURCES += %D%/attention-fused.c
else
libexeccuda_a_SOURCES += %D%/attention-fused-none.c
endif
endif

# Attention by cuDNN, which is loaded at the first call. Tests link a fake cuDNN instead.
cudnn_sources = \
  %D%/attention-ask.c \
  %D%/attention-cudnn.c %D%/attention-cudnn.h \
  %D%/attention-graph.c %D%/attention-graph.h
EXTRA_DIST += $(cudnn_sources) %D%/attention-driver.c %D%/cudnn-calls.c
if HAVE_CUDNN
noinst_LIBRARIES += libexeccudnn.a
libexeccudnn_a_SOURCES = $(cudnn_sources) %D%/attention-driver.c %D%/cudnn-calls.c
libexeccudnn_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDNN_CPPFLAGS)
endif
