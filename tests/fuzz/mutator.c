/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer's hook for changes of an input: depending on the seed, libFuzzer itself changes bytes,
 * or fuzz_mutate changes cells, keys and lines. */
#include "config.h"

#include "tests/fuzz/accepted.h"
#include "tests/fuzz/mutate.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate (uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator (uint8_t *data, size_t size, size_t max_size, unsigned int seed);

/* Changes `data`, which libFuzzer chose as it reached new code, or, every other time, one of the
 * last inputs that were accepted. */
size_t
LLVMFuzzerCustomMutator (uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
  gsize length;
  GBytes *accepted = seed % 2 ? fuzz_accepted (seed / 2 % 1024) : NULL;
  const char *text = accepted ? g_bytes_get_data (accepted, &length) : (const char *)data;
  if (!accepted)
    length = size;
  if (length == 0 || (!accepted && seed % 8 == 0))
    {
      length = LLVMFuzzerMutate (data, size, max_size);
      fuzz_announce (data, length);
      return length;
    }
  g_autofree char *other = fuzz_mutate (text, length, seed, &length);
  length = MIN (length, max_size);
  memcpy (data, other, length);
  fuzz_announce (data, length);
  return length;
}
