/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/runs/train-log.h"

#include <math.h>
#include <string.h>

#define LIST_BEGINS "---- arguments ----"
#define LIST_ENDS "---- end of arguments ----"
#define PADDED "> padded vocab ("
#define MAX_ARGUMENTS_BYTES (1024 * 1024)
#define WARM_UP 2

/* The run that is being read. */
typedef struct
{
  PlanTrainRun run;
  gboolean is_in_arguments;
  GString *arguments;
  GArray *steps, *tflops; /* double, one per step */
  gint64 last_step; /* the last step counted; in torchtitan's logs every rank prints each step */
} Open;

struct _PlanTrainLog
{
  Open open;
  GArray *runs;
};

static GArray *
reals_new (void)
{
  return g_array_new (FALSE, FALSE, sizeof (double));
}

static void
open_begin (Open *self)
{
  *self = (Open){ .arguments = g_string_new (NULL), .steps = reals_new (), .tflops = reals_new () };
  self->last_step = -1;
}

static void
open_clear (Open *self)
{
  g_free (self->run.arguments);
  g_free (self->run.padded_vocab);
  g_string_free (self->arguments, TRUE);
  g_array_unref (self->steps);
  g_array_unref (self->tflops);
}

static void
run_clear (gpointer data)
{
  PlanTrainRun *run = data;
  g_free (run->arguments);
  g_free (run->padded_vocab);
}

PlanTrainLog *
plan_train_log_new (void)
{
  PlanTrainLog *self = g_new0 (PlanTrainLog, 1);
  open_begin (&self->open);
  self->runs = g_array_new (FALSE, FALSE, sizeof (PlanTrainRun));
  g_array_set_clear_func (self->runs, run_clear);
  return self;
}

void
plan_train_log_free (PlanTrainLog *self)
{
  if (!self)
    return;
  open_clear (&self->open);
  g_array_unref (self->runs);
  g_free (self);
}

static int
compare_reals (gconstpointer a, gconstpointer b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The value below which a share of all values lies. Sorts the values. */
static double
quantile (GArray *values, double share)
{
  const double at = share * (double)(values->len - 1);
  const guint below = (guint)at;
  const double *v = (const double *)(gpointer)values->data;
  g_array_sort (values, compare_reals);
  return below + 1 < values->len ? v[below] + (at - below) * (v[below + 1] - v[below]) : v[below];
}

/* Leaves out the first steps, which warm up, but never more than half of all, and returns their
 * median. */
static double
settle (GArray *values, double *out_spread_pct)
{
  g_array_remove_range (values, 0, MIN (WARM_UP, values->len / 2));
  const double median = quantile (values, 0.5);
  if (out_spread_pct)
    *out_spread_pct = 50 * (quantile (values, 0.9) - quantile (values, 0.1)) / median;
  return median;
}

/* Keeps the run if it measured anything, and begins the next. */
static void
end_run (PlanTrainLog *self)
{
  Open *open = &self->open;
  PlanTrainRun *run = &open->run;
  run->n_steps = open->steps->len;
  if (open->steps->len > 0)
    {
      const double value = settle (open->steps, &run->spread_pct);
      if (run->kind == PLAN_LOG_MEGATRON)
        run->step_ms = value;
      else
        run->tokens_per_s_per_gpu = value;
    }
  if (open->tflops->len > 0)
    run->tflops_per_gpu = settle (open->tflops, NULL);
  if (open->arguments->len > 0)
    run->arguments = g_strdup (open->arguments->str);
  if (run->n_steps > 0 || run->max_allocated_mib > 0 || run->reserved_mib > 0 || run->ran_out)
    {
      g_array_append_val (self->runs, *run);
      *run = (PlanTrainRun){ 0 };
    }
  open_clear (open);
  open_begin (open);
}

/* Reads the number behind `key`. Commas may separate its thousands. */
static gboolean
number_after (const char *text, const char *key, double *out_value)
{
  const char *at = strstr (text, key);
  char digits[64];
  guint n = 0;
  char *end;
  if (!at)
    return FALSE;
  at += strlen (key);
  at += strspn (at, " ");
  for (; *at && strchr ("0123456789.,+-eE", *at) && n < sizeof digits - 1; at++)
    if (*at != ',')
      digits[n++] = *at;
  digits[n] = '\0';
  const double value = g_ascii_strtod (digits, &end);
  if (n == 0 || *end || !isfinite (value) || value < 0 || value > 1e15)
    return FALSE;
  *out_value = value;
  return TRUE;
}

static void
begin_at (Open *open, PlanLogKind kind, guint64 line)
{
  if (open->run.line == 0)
    open->run.line = line;
  open->run.kind = kind;
}

/* Reads Megatron-LM's line: " iteration 10/ 100 | ... | elapsed time per iteration (ms): 5410.6 |
 * ..." */
static void
take_iteration (Open *open, guint64 line, const char *text)
{
  double ms, value;
  if (!number_after (text, "elapsed time per iteration (ms):", &ms) || ms <= 0)
    return;
  begin_at (open, PLAN_LOG_MEGATRON, line);
  g_array_append_val (open->steps, ms);
  if (number_after (text, "throughput per GPU (TFLOP/s/GPU):", &value) && value > 0)
    g_array_append_val (open->tflops, value);
  if (number_after (text, "global batch size:", &value) && value >= 1 && value < 1e9)
    open->run.gbs = (gint64)value;
}

static void
raise_to (double *most, const char *text, const char *key)
{
  double value;
  if (number_after (text, key, &value))
    *most = MAX (*most, value);
}

/* Reads Megatron-LM's line "[Rank 0] (after 2 iterations) memory (MB) | allocated: … | max
 * allocated: … | reserved: … | max reserved: …", whose MB are 2^20 bytes. Several ranks may share a
 * line. */
static void
take_memory (Open *open, guint64 line, char *text)
{
  static const char mark[] = "memory (MB)";
  for (char *at = strstr (text, mark); at;)
    {
      char *next = strstr (at + 1, mark);
      char *end = next ? next : at + strlen (at);
      g_autofree char *one = g_strndup (at, (gsize)(end - at));
      begin_at (open, PLAN_LOG_MEGATRON, line);
      raise_to (&open->run.allocated_mib, one, "| allocated:");
      raise_to (&open->run.max_allocated_mib, one, "| max allocated:");
      raise_to (&open->run.reserved_mib, one, "| reserved:");
      raise_to (&open->run.reserved_mib, one, "| max reserved:");
      at = next;
    }
}

/* Reads torchtitan's line, which every rank prints: "step: 10  loss: …  memory: 41.72GiB(43.92%)
 * tps: 7,282  tflops: 333.7  mfu: …". A step is counted once, and its memory is that of the fullest
 * rank. */
static void
take_titan (Open *open, guint64 line, const char *text)
{
  double step, rate, gib, tflops;
  if (!number_after (text, "step:", &step) || !number_after (text, "tps:", &rate) || rate <= 0)
    return;
  begin_at (open, PLAN_LOG_TORCHTITAN, line);
  if (number_after (text, "memory:", &gib))
    open->run.reserved_mib = MAX (open->run.reserved_mib, gib * 1024);
  if ((gint64)step == open->last_step)
    return;
  open->last_step = (gint64)step;
  g_array_append_val (open->steps, rate);
  if (number_after (text, "tflops:", &tflops) && tflops > 0)
    g_array_append_val (open->tflops, tflops);
}

/* Returns TRUE where the line belongs to the argument list. */
static gboolean
take_arguments (PlanTrainLog *self, guint64 line, const char *text)
{
  Open *open = &self->open;
  if (strstr (text, LIST_ENDS) && open->is_in_arguments)
    open->is_in_arguments = FALSE;
  else if (strstr (text, LIST_BEGINS))
    {
      if (open->steps->len > 0)
        end_run (self);
      begin_at (open, PLAN_LOG_MEGATRON, line);
      open->is_in_arguments = TRUE;
    }
  else if (!open->is_in_arguments)
    return FALSE;
  if (open->arguments->len < MAX_ARGUMENTS_BYTES)
    g_string_append_printf (open->arguments, "%s\n", text);
  return TRUE;
}

static gboolean
tells_of_no_memory (const char *text)
{
  return strstr (text, "CUDA out of memory") || strstr (text, "torch.OutOfMemoryError")
         || strstr (text, "cudaErrorMemoryAllocation");
}

void
plan_train_log_take (PlanTrainLog *self, guint64 line, char *text)
{
  Open *open = &self->open;
  if (strstr (text, PADDED) && !open->run.padded_vocab)
    open->run.padded_vocab = g_strdup (text);
  if (strstr (text, "elapsed time per iteration"))
    {
      open->is_in_arguments = FALSE; /* the argument list has no end */
      take_iteration (open, line, text);
    }
  else if (strstr (text, "memory (MB)"))
    take_memory (open, line, text);
  else if (strstr (text, "tps:") && strstr (text, "step:"))
    take_titan (open, line, text);
  else if (tells_of_no_memory (text))
    {
      begin_at (open, open->run.kind, line);
      open->run.ran_out = TRUE;
    }
  else
    take_arguments (self, line, text);
}

const GArray *
plan_train_log_end (PlanTrainLog *self)
{
  end_run (self);
  return self->runs;
}
