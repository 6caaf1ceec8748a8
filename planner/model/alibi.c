/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/model/alibi.h"

#include <math.h>

double
plan_alibi_slope (gint64 head, gint64 heads)
{
  gint64 power = 1;
  while (2 * power <= heads)
    power *= 2;
  return head < power ? exp2 (-8 * (double)(head + 1) / (double)power)
                      : exp2 (-4 * (double)(2 * (head - power) + 1) / (double)power);
}
