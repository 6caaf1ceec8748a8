/* What a host compiler sees of the CUDA runtime. Kernels on the fake device have
 * tests/fake/cuda-fake.h before them, and this adds nothing to it. */
#pragma once
#include "cuda_runtime_api.h"
