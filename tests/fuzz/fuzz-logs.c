/* SPDX-License-Identifier: Apache-2.0 */
/* A log in pieces of a size that the first byte tells: figures are finite and not negative, and the
 * pieces do not matter. */
#include "config.h"

#include "planner/base/lines.h"
#include "planner/runs/nccl-log.h"
#include "planner/runs/train-log.h"
#include "tests/fuzz/accepted.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

typedef struct
{
  PlanTrainLog *train;
  PlanNcclLog *nccl;
} Logs;

static void
take (guint64 line, char *text, gpointer user_data)
{
  const Logs *self = user_data;
  plan_nccl_log_take (self->nccl, line, text);
  plan_train_log_take (self->train, line, text);
}

static void
add (GString *seen, double value)
{
  if (!isfinite (value) || value < 0)
    abort ();
  g_string_append_printf (seen, " %.17g", value);
}

static void
add_runs (GString *seen, const GArray *runs)
{
  for (guint i = 0; i < runs->len; i++)
    {
      const PlanTrainRun *run = &g_array_index (runs, PlanTrainRun, i);
      if (run->n_steps > 0 && run->step_ms <= 0 && run->tokens_per_s_per_gpu <= 0)
        abort ();
      add (seen, run->step_ms);
      add (seen, run->spread_pct);
      add (seen, run->tokens_per_s_per_gpu);
      add (seen, run->tflops_per_gpu);
      add (seen, run->allocated_mib);
      add (seen, run->max_allocated_mib);
      add (seen, run->reserved_mib);
      add (seen, (double)run->gbs);
      g_string_append (seen, run->arguments ? run->arguments : "");
    }
}

static void
add_times (GString *seen, const GArray *times)
{
  for (guint i = 0; i < times->len; i++)
    {
      const PlanNcclTime *time = &g_array_index (times, PlanNcclTime, i);
      if ((time->host && !g_utf8_validate (time->host, -1, NULL))
          || (time->device && !g_utf8_validate (time->device, -1, NULL)))
        abort ();
      add (seen, (double)time->time_ns[0]);
      add (seen, (double)time->time_ns[1]);
      add (seen, (double)plan_nccl_time_count (time));
    }
}

static char *
read_all (const char *text, gsize length, gsize piece, gboolean *out_has_any)
{
  g_autoptr (PlanTrainLog) train = plan_train_log_new ();
  g_autoptr (PlanNcclLog) nccl = plan_nccl_log_new ("fuzz.log");
  Logs logs = { train, nccl };
  g_autoptr (PlanLines) lines = plan_lines_new (take, &logs);
  GString *seen = g_string_new (NULL);
  for (gsize at = 0; at < length; at += piece)
    plan_lines_feed (lines, text + at, MIN (piece, length - at));
  plan_lines_end (lines);
  const GArray *runs = plan_train_log_end (train), *times = plan_nccl_log_times (nccl);
  add_runs (seen, runs);
  add_times (seen, times);
  *out_has_any = runs->len > 0 || times->len > 0;
  return g_string_free (seen, FALSE);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  if (size == 0)
    return 0;
  gboolean has_any;
  g_autofree char *whole = read_all ((const char *)data, size, size, &has_any);
  g_autofree char *pieces = read_all ((const char *)data, size, 1 + data[0] % 64, &has_any);
  fuzz_count (has_any);
  if (!g_str_equal (whole, pieces))
    abort ();
  return 0;
}
