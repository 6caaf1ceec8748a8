/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/trace.h"

#include "planner/base/error.h"

#include <string.h>

PlanTrace *
plan_trace_new (const char *origin)
{
  PlanTrace *self = g_new0 (PlanTrace, 1);
  self->origin = g_strdup (origin);
  self->spans = g_array_new (FALSE, FALSE, sizeof (PlanSpan));
  self->samples = g_array_new (FALSE, FALSE, sizeof (PlanMemorySample));
  self->waits = g_array_new (FALSE, FALSE, sizeof (PlanWait));
  self->memory.peak_unit = -1;
  return self;
}

void
plan_trace_free (PlanTrace *self)
{
  if (!self)
    return;
  g_array_unref (self->spans);
  g_array_unref (self->samples);
  g_array_unref (self->waits);
  g_free (self->origin);
  g_free (self);
}

void
plan_trace_add_span (PlanTrace *self, guint32 node, gint32 unit, gint64 start_ns, gint64 end_ns)
{
  const PlanSpan span = { .node = node, .unit = unit, .start_ns = start_ns, .end_ns = end_ns };
  g_array_append_val (self->spans, span);
}

void
plan_trace_add_wait (PlanTrace *self, gint64 start_ns, gint64 end_ns)
{
  const PlanWait wait = { start_ns, end_ns };
  if (end_ns > start_ns)
    g_array_append_val (self->waits, wait);
}

void
plan_trace_add_sample (PlanTrace *self, PlanCategory category, gint64 at_ns, gint64 live_bytes)
{
  const PlanMemorySample sample = {
    .span = self->spans->len, .category = (gint32)category, .at_ns = at_ns, .live_bytes = live_bytes
  };
  g_array_append_val (self->samples, sample);
}

/* A stream's busy time within one period, as a walk over its spans. A span that runs past the end
 * of the step does so in every step; its tail belongs to the beginning of the period and comes
 * first. */
typedef struct
{
  const PlanSpan *all;
  const guint *spans; /* the stream's own among all, in order */
  guint n, next;
  gint64 step_ns;
  gboolean in_tail;  /* still among the tails of the previous step */
  gint64 start, end; /* of the current span; G_MAXINT64 at the end */
} Busy;

static void
busy_advance (Busy *self)
{
  for (; self->in_tail || self->next < self->n; self->next++)
    {
      if (self->next == self->n)
        {
          self->in_tail = FALSE;
          self->next = 0;
        }
      const PlanSpan *span = &self->all[self->spans[self->next]];
      const gint64 shift = self->in_tail ? self->step_ns : 0;
      if (span->end_ns <= shift)
        continue;
      self->start = span->start_ns - shift;
      self->end = span->end_ns - shift;
      self->next++;
      return;
    }
  self->start = self->end = G_MAXINT64;
}

/* Moves to the first span that ends after `now`. */
static void
busy_seek (Busy *self, gint64 now)
{
  while (self->end <= now)
    busy_advance (self);
}

/* Streams by precedence: time belongs to the first of them that is busy, so communication that
 * compute hides costs nothing. Where none is busy, all wait for the host to issue something. */
static const PlanStream precedence[]
    = { PLAN_STREAM_COMPUTE,      PLAN_STREAM_TENSOR,       PLAN_STREAM_EXPERTS,
        PLAN_STREAM_CONTEXT,      PLAN_STREAM_NEXT,         PLAN_STREAM_PREV,
        PLAN_STREAM_GATHER,       PLAN_STREAM_OUTER_GATHER, PLAN_STREAM_REDUCE,
        PLAN_STREAM_OUTER_REDUCE, PLAN_STREAM_COPY,         PLAN_STREAM_FETCH };

/* The share that time belongs to when no stream is busy; shortens `until` to where that changes. */
static gint64 *
idle_or_host (PlanTrace *self, gint64 now, guint *next, gint64 *until)
{
  const PlanWait *waits = (const PlanWait *)(gconstpointer)self->waits->data;
  while (*next < self->waits->len && waits[*next].end_ns <= now)
    (*next)++;
  if (*next == self->waits->len)
    return &self->host_ns;
  const gboolean is_waiting = waits[*next].start_ns <= now;
  *until = MIN (*until, is_waiting ? waits[*next].end_ns : waits[*next].start_ns);
  return is_waiting ? &self->idle_ns : &self->host_ns;
}

/* Sorts the spans that take time by their streams. `first`: where each stream's begin in the list,
 * which the caller frees, and the end of the last. */
static guint *
sort_by_stream (const PlanTrace *self, const PlanSchedule *schedule,
                guint first[PLAN_N_STREAMS + 1])
{
  const PlanSpan *spans = (const PlanSpan *)(gconstpointer)self->spans->data;
  guint *sorted = g_new (guint, self->spans->len + 1);
  guint next[PLAN_N_STREAMS + 1] = { 0 };
  for (guint i = 0; i < self->spans->len; i++)
    if (spans[i].end_ns > spans[i].start_ns)
      next[plan_schedule_node (schedule, spans[i].node)->stream + 1]++;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    next[s + 1] += next[s];
  memcpy (first, next, sizeof next);
  for (guint i = 0; i < self->spans->len; i++)
    if (spans[i].end_ns > spans[i].start_ns)
      sorted[next[plan_schedule_node (schedule, spans[i].node)->stream]++] = i;
  return sorted;
}

void
plan_trace_attribute (PlanTrace *self, const PlanSchedule *schedule)
{
  Busy busy[G_N_ELEMENTS (precedence)];
  gint64 *const share[]
      = { &self->compute_ns,        &self->exposed_tensor_ns, &self->exposed_tensor_ns,
          &self->exposed_tensor_ns, &self->exposed_tensor_ns, &self->exposed_tensor_ns,
          &self->exposed_gather_ns, &self->exposed_gather_ns, &self->exposed_reduce_ns,
          &self->exposed_reduce_ns, &self->exposed_copy_ns,   &self->exposed_copy_ns };
  guint first[PLAN_N_STREAMS + 1];
  g_autofree guint *sorted = sort_by_stream (self, schedule, first);
  self->host_ns = self->idle_ns = 0;
  for (guint i = 0; i < G_N_ELEMENTS (precedence); i++)
    {
      const guint from = first[precedence[i]], n = first[precedence[i] + 1] - from;
      *share[i] = 0;
      busy[i] = (Busy){ .all = (const PlanSpan *)(gconstpointer)self->spans->data,
                        .spans = sorted + from,
                        .n = n,
                        .step_ns = self->step_ns,
                        .in_tail = n > 0 };
      busy_advance (&busy[i]);
    }
  guint next_wait = 0;
  for (gint64 now = 0; now < self->step_ns;)
    {
      gint64 until = self->step_ns;
      gint64 *owner = idle_or_host (self, now, &next_wait, &until);
      for (guint i = 0; i < G_N_ELEMENTS (precedence); i++)
        {
          busy_seek (&busy[i], now);
          if (busy[i].start <= now)
            {
              until = MIN (until, busy[i].end);
              owner = share[i];
              break;
            }
          until = MIN (until, busy[i].start);
        }
      *owner += until - now;
      now = until;
    }
}

static gboolean
check_spans (const PlanTrace *self, const PlanSchedule *schedule, GError **error)
{
  gint64 busy_until[PLAN_N_STREAMS];
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    busy_until[s] = G_MININT64;
  for (guint i = 0; i < self->spans->len; i++)
    {
      const PlanSpan *span = &g_array_index (self->spans, PlanSpan, i);
      if (span->node >= plan_schedule_n_nodes (schedule))
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "trace: span %u has no op", i);
          return FALSE;
        }
      const PlanStream stream = plan_schedule_node (schedule, span->node)->stream;
      if (span->end_ns < span->start_ns || span->start_ns < busy_until[stream])
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                       "trace: span %u begins before its stream %s is free", i,
                       plan_stream_name (stream));
          return FALSE;
        }
      busy_until[stream] = span->end_ns;
    }
  return TRUE;
}

static gboolean
check_samples (const PlanTrace *self, GError **error)
{
  gint64 live[PLAN_N_CATEGORIES] = { 0 }, total = 0, peak = 0;
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      live[c] = (gint64)self->memory.resting[c];
      total += live[c];
    }
  peak = total;
  for (guint i = 0; i < self->samples->len; i++)
    {
      const PlanMemorySample *sample = &g_array_index (self->samples, PlanMemorySample, i);
      if (sample->category < 0 || sample->category >= PLAN_N_CATEGORIES || sample->live_bytes < 0)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "trace: sample %u is not memory", i);
          return FALSE;
        }
      total += sample->live_bytes - live[sample->category];
      live[sample->category] = sample->live_bytes;
      peak = MAX (peak, total);
    }
  gint64 claimed = 0;
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    claimed += (gint64)self->memory.by_category[c];
  if (claimed != peak)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                   "trace: the peak is %" G_GINT64_FORMAT
                   " bytes and its categories say %" G_GINT64_FORMAT,
                   peak, claimed);
      return FALSE;
    }
  return TRUE;
}

gboolean
plan_trace_check (const PlanTrace *self, const PlanSchedule *schedule, GError **error)
{
  const gint64 parts = self->compute_ns + self->exposed_tensor_ns + self->exposed_gather_ns
                       + self->exposed_reduce_ns + self->exposed_copy_ns + self->host_ns
                       + self->idle_ns;
  if (parts != self->step_ns)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT,
                   "trace: the parts of the step add up to %" G_GINT64_FORMAT
                   " ns, the step is %" G_GINT64_FORMAT,
                   parts, self->step_ns);
      return FALSE;
    }
  return check_spans (self, schedule, error) && check_samples (self, error);
}
