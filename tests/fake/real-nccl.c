/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled, and never run, where NCCL is installed. Compiling fails unless every prototype, value
 * and field that tests/fake/include/nccl.h declares is NCCL's. */
#include "config.h"

#include <nccl.h>
#include <stddef.h>

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) /* the version that the fake imitates */

#define FAKE_CUDA_REAL_TYPES
#include "tests/fake/include/nccl.h"

#define IS(name, value) _Static_assert((name) == (value), #name);
FAKE_NCCL_RESULTS (IS)
FAKE_NCCL_TYPES (IS)
FAKE_NCCL_OPERATIONS (IS)
FAKE_NCCL_FLAGS (IS)

#define FIELD(type, name) type name;
struct fake_config
{
  FAKE_NCCL_CONFIG (FIELD)
};
#define IS_FIELD(type, name) \
  _Static_assert(__builtin_types_compatible_p (__typeof__ (((ncclConfig_t *)0)->name), type) \
                     && offsetof (struct fake_config, name) == offsetof (ncclConfig_t, name), \
                 #name);
FAKE_NCCL_CONFIG (IS_FIELD)
_Static_assert(sizeof (struct fake_config) == sizeof (ncclConfig_t), "size");

#endif
