/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fuzz/accepted.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static guint64 n_inputs, n_accepted;

/* Not by stdio: a fuzzer may have turned its streams away from what it tests. */
static void
print (void)
{
  dprintf (STDERR_FILENO, "# accepted: %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT "\n",
           n_accepted, n_inputs);
}

void
fuzz_count (gboolean is_accepted)
{
  if (n_inputs == 0)
    atexit (print);
  n_inputs++;
  n_accepted += is_accepted ? 1 : 0;
}
