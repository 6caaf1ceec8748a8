/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/prop/random.h"

void
random_loads (SimCost *cost, const PlanSchedule *schedule, guint32 seed)
{
  static const guint16 some[] = { 0, 0, 150, 600, 1000 };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      SimLoad load;
      for (guint r = 0; r < SIM_N_SHARED; r++)
        load.permille[r] = some[g_rand_int_range (rand, 0, G_N_ELEMENTS (some))];
      sim_cost_set_load (cost, node, load);
    }
}
