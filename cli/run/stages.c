/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/stages.h"

#include <string.h>

guint
cli_stages_n (const CliTraining *self)
{
  return (guint)self->job.of->plan.value[PLAN_PP];
}

guint
cli_stages_rank (const CliTraining *self, guint stage)
{
  return stage * self->ranks / cli_stages_n (self);
}

PlanTraceView
cli_stages_predicted (const CliTraining *self, guint stage)
{
  const AdvisePrediction *p = &self->prediction;
  return p->expanded->len > 0 ? g_array_index (p->expanded, PlanTraceView, stage)
                              : (PlanTraceView){ p->trace, p->schedule, 0 };
}

const PlanMemory *
cli_stages_memory (const CliTraining *self, guint stage)
{
  const GArray *stages = self->prediction.stages;
  return stages->len > 0 ? &g_array_index (stages, AdviseStage, stage).totals->memory
                         : &self->prediction.trace->memory;
}

guint64
cli_stages_device (const CliTraining *self)
{
  const guint n = cli_stages_n (self);
  guint64 bytes = 0;
  for (guint stage = 0; stage < n; stage++)
    bytes += self->ranks / n * cli_stages_memory (self, stage)->device;
  return bytes;
}

/* --- traces of other processes ------------------------------------------------------------- */

/* Sends a trace to rank 0: its length, then its text. */
static gboolean
send_trace (ExecComm *comm, const PlanTrace *trace, GError **error)
{
  g_autofree char *text = plan_trace_print (trace);
  const gint64 length = (gint64)strlen (text);
  return comm->ops->trade (comm, NULL, &length, 1, PLAN_DTYPE_I64, 0, NULL, error)
         && comm->ops->trade (comm, NULL, text, (guint64)length, PLAN_DTYPE_U8, 0, NULL, error);
}

static PlanTrace *
receive_trace (ExecComm *comm, guint rank, const char *origin, GError **error)
{
  gint64 length;
  if (!comm->ops->trade (comm, &length, NULL, 1, PLAN_DTYPE_I64, rank, NULL, error))
    return NULL;
  g_autofree char *text = g_malloc0 ((gsize)length + 1);
  return comm->ops->trade (comm, text, NULL, (guint64)length, PLAN_DTYPE_U8, rank, NULL, error)
             ? plan_trace_parse (text, origin, error)
             : NULL;
}

gboolean
cli_stages_gather (const CliTraining *self, const PlanTrace *own, PlanTrace **out_traces,
                   GError **error)
{
  ExecComm *comm = self->comm;
  for (guint stage = 1; stage < cli_stages_n (self); stage++)
    {
      const guint rank = cli_stages_rank (self, stage);
      if (comm->rank == rank && !send_trace (comm, own, error))
        return FALSE;
      if (comm->rank == 0 && !(out_traces[stage] = receive_trace (comm, rank, own->origin, error)))
        return FALSE;
    }
  return TRUE;
}

/* --- output -------------------------------------------------------------------------------- */

CliTable *
cli_stages_table (const CliTraining *self, const ExecRankTime *times)
{
  static const CliColumn columns[] = { { "stage", TRUE },
                                       { "ranks", TRUE },
                                       { "holds", FALSE },
                                       { "predicted_mib", TRUE },
                                       { "measured_mib", TRUE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint stage = 0; stage < cli_stages_n (self); stage++)
    {
      const guint first = cli_stages_rank (self, stage), end = cli_stages_rank (self, stage + 1);
      g_autofree char *ranks = end == first + 1 ? g_strdup_printf ("%u", first)
                                                : g_strdup_printf ("%u-%u", first, end - 1);
      g_autofree char *holds
          = advise_stage_describe (&g_array_index (self->prediction.stages, AdviseStage, stage));
      cli_table_add_int (table, stage);
      cli_table_add (table, ranks);
      cli_table_add (table, holds);
      cli_table_add_real (table, advise_mib (cli_stages_memory (self, stage)->max_allocated), 3);
      cli_table_add_real (table, advise_mib (times[first].memory.max_allocated), 3);
    }
  return table;
}

static void
add_mib (JsonBuilder *b, const char *name, guint64 bytes)
{
  json_builder_set_member_name (b, name);
  json_builder_add_double_value (b, advise_mib (bytes));
}

void
cli_stages_to_json (const CliTraining *self, const ExecRankTime *times, JsonBuilder *b)
{
  json_builder_begin_array (b);
  for (guint stage = 0; stage < cli_stages_n (self); stage++)
    {
      const PlanMemory *memory = &times[cli_stages_rank (self, stage)].memory;
      json_builder_begin_object (b);
      json_builder_set_member_name (b, "first_rank");
      json_builder_add_int_value (b, cli_stages_rank (self, stage));
      add_mib (b, "predicted_max_allocated_mib", cli_stages_memory (self, stage)->max_allocated);
      add_mib (b, "max_allocated_mib", memory->max_allocated);
      json_builder_end_object (b);
    }
  json_builder_end_array (b);
}
