/* SPDX-License-Identifier: Apache-2.0 */
/* This file is only compiled, where cuDNN is installed: it compiles only if every prototype and
 * value that tests/fake/include/cudnn.h declares is cuDNN's. */
#include "config.h"

#include <stdbool.h>

#include <cudnn.h>

#define FAKE_CUDA_REAL_TYPES
#include "tests/fake/include/cudnn.h"

#define IS(name, value) _Static_assert((name) == (value), #name);
#define ARE(type, list) list (IS)
FAKE_CUDNN_ENUMS (ARE)
