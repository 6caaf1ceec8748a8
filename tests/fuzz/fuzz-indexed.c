/* SPDX-License-Identifier: Apache-2.0 */
/* What parses is as large as its counts say, and has no more tokens than its sequences can hold. */
#include "config.h"

#include "exec/data/indexed.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (GError) error = NULL;
  ExecIndexed indexed = { 0 };
  const gboolean ok = exec_indexed_parse (data, size, "fuzz", &indexed, &error);
  if (ok == (error != NULL))
    abort ();
  fuzz_count (ok);
  if (ok
      && (42 + 12 * indexed.sequences + 8 * indexed.documents != size || indexed.bytes == 0
          || indexed.tokens > indexed.sequences * G_MAXINT32))
    abort ();
  return 0;
}
