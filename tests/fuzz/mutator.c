/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer's hook: it changes bytes as it knows how, or cells, keys and lines (mutate.h), in turns
 * that the seed gives. */
#include "config.h"

#include "tests/fuzz/mutate.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate (uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator (uint8_t *data, size_t size, size_t max_size, unsigned int seed);

size_t
LLVMFuzzerCustomMutator (uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
  gsize length;
  if (size == 0 || seed % 4 == 0)
    return LLVMFuzzerMutate (data, size, max_size);
  g_autofree char *text = fuzz_mutate ((const char *)data, size, seed, &length);
  length = MIN (length, max_size);
  memcpy (data, text, length);
  return length;
}
