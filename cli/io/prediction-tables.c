/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/prediction-tables.h"

#include "advise/query.h"
#include "planner/base/units.h"

CliTable *
cli_table_of_memory (const AdvisePrediction *p)
{
  static const CliColumn columns[]
      = { { "memory", FALSE }, { "between_steps_mib", TRUE }, { "at_peak_mib", TRUE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  const PlanMemory *m = &p->trace->memory;
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      if (m->resting[c] == 0 && m->by_category[c] == 0)
        continue;
      cli_table_add (table, plan_category_name (c));
      cli_table_add_real (table, advise_mib (m->resting[c]), 1);
      cli_table_add_real (table, advise_mib (m->by_category[c]), 1);
    }
  cli_table_add (table, "outside the plan (workspaces, tables)");
  cli_table_add_real (table, advise_mib (p->of->stack->memory.fixed_bytes), 1);
  cli_table_add_real (table, advise_mib (p->of->stack->memory.fixed_bytes), 1);
  cli_table_add (table, "allocated, max allocated");
  cli_table_add_real (table, advise_mib (m->allocated), 1);
  cli_table_add_real (table, advise_mib (m->max_allocated), 1);
  return table;
}

CliTable *
cli_table_of_time (const AdvisePrediction *p)
{
  static const CliColumn columns[] = { { "time", FALSE }, { "ms", TRUE }, { "share_pct", TRUE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  const PlanTrace *t = p->trace;
  g_autofree char *exchanges = g_strdup_printf ("exposed %s", advise_exchanges_of (&p->of->plan));
  const struct
  {
    const char *name;
    gint64 ns;
  } rows[] = { { "compute", t->compute_ns },
               { "  of it slowed by others", (gint64)(1e6 * p->slowed_ms) },
               { "exposed gather", t->exposed_gather_ns },
               { "exposed reduce", t->exposed_reduce_ns },
               { exchanges, t->exposed_tensor_ns },
               { "exposed copy", t->exposed_copy_ns },
               { "host", t->host_ns },
               { "idle", t->idle_ns },
               { "step", t->step_ns } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      cli_table_add (table, rows[i].name);
      cli_table_add_real (table, 1e-6 * (double)rows[i].ns, 2);
      cli_table_add_real (table, 100.0 * (double)rows[i].ns / (double)t->step_ns, 1);
    }
  return table;
}

CliTable *
cli_table_of_compute (const AdvisePrediction *p)
{
  static const CliColumn columns[] = { { "compute", FALSE },
                                       { "ms", TRUE },
                                       { "share_pct", TRUE },
                                       { "rate", TRUE },
                                       { "of_peak_pct", TRUE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  const char *key, *name;
  guint i = 0;
  for (const AdviseWork *work; (work = advise_split_next (&p->split, &i, &key, &name));)
    {
      const AdvisePace pace = advise_split_pace (&p->split, work);
      g_autofree char *rate = pace.is_arithmetic ? plan_units_format_flops (pace.per_s)
                                                 : g_strdup_printf ("%.1f GB/s", 1e-9 * pace.per_s);
      cli_table_add (table, name);
      cli_table_add_real (table, 1e-6 * (double)work->ns, 2);
      cli_table_add_real (table, 100.0 * (double)work->ns / (double)p->trace->step_ns, 1);
      cli_table_add (table, pace.per_s > 0 ? rate : NULL);
      if (pace.of_peak_pct >= 0 && pace.per_s > 0)
        cli_table_add_real (table, pace.of_peak_pct, 1);
      else
        cli_table_add (table, NULL);
    }
  return table;
}
