/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/sim-explain.h"

#include "advise/explain-memory.h"
#include "advise/explain-time.h"

#include <stdio.h>

static const CliColumn line_columns[] = { { "memory", FALSE },
                                          { "plan_mib", TRUE },
                                          { "arithmetic_mib", TRUE },
                                          { "more_mib", TRUE },
                                          { "arithmetic", FALSE } };

static const CliColumn resident_columns[] = {
  { "category", FALSE },         { "buffers", FALSE },    { "each_mib", TRUE },
  { "at_peak", TRUE },           { "at_peak_mib", TRUE }, { "between_steps", TRUE },
  { "between_steps_mib", TRUE },
};

static void
add_line (CliTable *table, const char *what, double plan_mib, double naive_mib, const char *formula)
{
  cli_table_add (table, what);
  cli_table_add_real (table, plan_mib, 1);
  cli_table_add_real (table, naive_mib, 1);
  cli_table_add_real (table, plan_mib - naive_mib, 1);
  cli_table_add (table, formula);
}

static CliTable *
table_of_lines (const AdvisePrediction *prediction)
{
  g_autoptr (GArray) lines = advise_explain_memory (prediction);
  CliTable *table = cli_table_new (line_columns, G_N_ELEMENTS (line_columns));
  double plan_mib = 0, naive_mib = 0;
  for (guint i = 0; i < lines->len; i++)
    {
      const AdviseMemoryLine *line = &g_array_index (lines, AdviseMemoryLine, i);
      add_line (table, line->what, advise_mib (line->bytes), line->naive_mib,
                line->formula ? line->formula : "left out");
      plan_mib += advise_mib (line->bytes);
      naive_mib += line->naive_mib;
    }
  add_line (table, "all", plan_mib, naive_mib, "sum of these");
  return table;
}

static CliTable *
table_of_residents (const AdvisePrediction *prediction)
{
  g_autoptr (GArray) residents = advise_residents (prediction);
  CliTable *table = cli_table_new (resident_columns, G_N_ELEMENTS (resident_columns));
  for (guint i = 0; i < residents->len; i++)
    {
      const AdviseResident *resident = &g_array_index (residents, AdviseResident, i);
      cli_table_add (table, plan_category_name (resident->category));
      cli_table_add (table, resident->name);
      cli_table_add_real (table, advise_mib (resident->each), 3);
      cli_table_add_int (table, resident->at_peak);
      cli_table_add_real (table, advise_mib (resident->each * (guint64)resident->at_peak), 1);
      cli_table_add_int (table, resident->resting);
      cli_table_add_real (table, advise_mib (resident->each * (guint64)resident->resting), 1);
    }
  return table;
}

/* Adds a rate; an empty cell where there is none. */
static void
add_rate (CliTable *table, double much, double ns)
{
  if (much > 0 && ns > 0)
    cli_table_add_real (table, much / ns, much / ns < 10 ? 3 : 1);
  else
    cli_table_add (table, NULL);
}

void
cli_explain_memory (const AdvisePrediction *prediction, CliFormat format)
{
  g_autoptr (CliTable) lines = table_of_lines (prediction);
  g_autoptr (CliTable) residents = table_of_residents (prediction);
  if (format == CLI_FORMAT_JSON)
    {
      g_autoptr (JsonBuilder) builder = json_builder_new ();
      json_builder_begin_object (builder);
      json_builder_set_member_name (builder, "arithmetic");
      json_builder_add_value (builder, cli_table_to_json (lines));
      json_builder_set_member_name (builder, "live");
      json_builder_add_value (builder, cli_table_to_json (residents));
      json_builder_end_object (builder);
      g_autoptr (JsonNode) root = json_builder_get_root (builder);
      cli_print_json (root);
      return;
    }
  if (format == CLI_FORMAT_TABLE)
    {
      g_autofree char *peak = advise_peak_name (&prediction->trace->memory, prediction->schedule);
      cli_table_print (lines, format);
      printf ("\nlive at the peak, when taking %s, and between steps:\n", peak);
    }
  cli_table_print (residents, format);
}

gboolean
cli_explain_time (const AdviseInput *input, const AdvisePrediction *prediction, CliFormat format,
                  GError **error)
{
  static const CliColumn columns[] = {
    { "stream", FALSE },     { "op", FALSE },      { "writes", FALSE },  { "sizes", FALSE },
    { "times", TRUE },       { "each_us", TRUE },  { "total_ms", TRUE }, { "tflops_per_s", TRUE },
    { "of_peak_pct", TRUE }, { "gb_per_s", TRUE },
  };
  g_autoptr (GArray) times = advise_explain_time (input, prediction, error);
  if (!times)
    return FALSE;
  g_autoptr (CliTable) table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < times->len; i++)
    {
      const AdviseOpTime *one = &g_array_index (times, AdviseOpTime, i);
      const double each_ns = (double)one->total_ns / (double)one->times;
      cli_table_add (table, one->stream);
      cli_table_add (table, one->op);
      cli_table_add (table, one->writes);
      cli_table_add (table, one->sizes);
      cli_table_add_int (table, one->times);
      cli_table_add_real (table, 1e-3 * each_ns, 1);
      cli_table_add_real (table, 1e-6 * (double)one->total_ns, 3);
      add_rate (table, 1e-3 * one->flops, each_ns);
      add_rate (table, one->peak_flops > 0 ? 1e11 * one->flops / one->peak_flops : 0, each_ns);
      add_rate (table, one->bytes, each_ns);
    }
  cli_table_print (table, format);
  return TRUE;
}
