/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled, and never run, where the CUDA toolkit is installed. Compiling fails unless every
 * prototype, value and field that tests/fake/include declares is the toolkit's. */
#include "config.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#if CUBLAS_VERSION >= 130000 /* the version that the fake imitates */

#define FAKE_CUDA_REAL_TYPES
#include "tests/fake/include/cublasLt.h"

#define IS(name, value) _Static_assert((name) == (value), #name);
#define IS_FIELD(type, name, dimension) \
  _Static_assert(__builtin_types_compatible_p (__typeof__ (((struct cudaDeviceProp *)0)->name), \
                                               type dimension), \
                 #name);
FAKE_CUDA_ERRORS (IS)
FAKE_CUDA_MEMCPY_KINDS (IS)
FAKE_CUDA_DEVICE_ATTRIBUTES (IS)
FAKE_CUDA_FUNCTION_ATTRIBUTES (IS)
FAKE_CUDA_MEMORY_TYPES (IS)
FAKE_CUDA_CAPTURE_MODES (IS)
FAKE_CUDA_CAPTURE_STATES (IS)
FAKE_CUDA_FLAGS (IS)
FAKE_CUDA_PROPERTIES (IS_FIELD)
FAKE_CUDA_DATA_TYPES (IS)
FAKE_CUBLAS_STATUSES (IS)
FAKE_CUBLAS_OPERATIONS (IS)
FAKE_CUBLAS_COMPUTE_TYPES (IS)
FAKE_CUBLASLT_DESC_ATTRIBUTES (IS)
FAKE_CUBLASLT_SCALE_MODES (IS)
FAKE_CUBLASLT_POINTER_MODES (IS)
FAKE_CUBLASLT_EPILOGUES (IS)
FAKE_CUBLASLT_ORDERS (IS)
FAKE_CUBLASLT_LAYOUT_ATTRIBUTES (IS)
FAKE_CUBLASLT_PREFERENCE_ATTRIBUTES (IS)
FAKE_CUBLASLT_REDUCTIONS (IS)
FAKE_CUBLASLT_ALGO_ATTRIBUTES (IS)

#endif
