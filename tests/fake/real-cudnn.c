/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled, and never run, where cuDNN is installed. Compiling fails unless every prototype and
 * value that tests/fake/include/cudnn.h declares is cuDNN's. */
#include "config.h"

#include <stdbool.h>

#include <cudnn.h>

#define FAKE_CUDA_REAL_TYPES
#include "tests/fake/include/cudnn.h"

#define IS(name, value) _Static_assert((name) == (value), #name);
#define ARE(type, list) list (IS)
FAKE_CUDNN_ENUMS (ARE)
