/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/search.h"

#include "planner/bound.h"

#include <string.h>

/* A point that rules and bounds leave. */
typedef struct
{
  guint64 point, memory_bytes; /* at least */
  gint64 time_ns;              /* at least */
} Candidate;

typedef struct
{
  const PlanSearch *search;
  PlanSearchResult *result;
  GArray *candidates; /* by least time */
  GMutex lock;
  guint64 next;    /* point, then candidate */
  gint64 worst_ns; /* of the K best times so far; G_MAXINT64 before there are so many */
  gboolean is_stopped;
} Work;

#define CHUNK 256 /* points taken at once */

void
plan_search_result_clear (PlanSearchResult *self)
{
  g_clear_pointer (&self->found, g_array_unref);
}

static int
compare_candidates (gconstpointer a, gconstpointer b)
{
  const Candidate *x = a, *y = b;
  if (x->time_ns != y->time_ns)
    return x->time_ns < y->time_ns ? -1 : 1;
  if (x->memory_bytes != y->memory_bytes)
    return x->memory_bytes < y->memory_bytes ? -1 : 1;
  return x->point < y->point ? -1 : x->point > y->point;
}

static int
compare_found (gconstpointer a, gconstpointer b)
{
  const PlanFound *x = a, *y = b;
  if (x->score.time_ns != y->score.time_ns)
    return x->score.time_ns < y->score.time_ns ? -1 : 1;
  if (x->score.memory_bytes != y->score.memory_bytes)
    return x->score.memory_bytes < y->score.memory_bytes ? -1 : 1;
  return x->point < y->point ? -1 : x->point > y->point;
}

/* Least memory among what does not fit, ties to the lower point. */
static void
consider_closest (PlanSearchResult *result, const PlanFound *found)
{
  const PlanFound *now = &result->closest;
  if (result->is_closest
      && (found->score.memory_bytes > now->score.memory_bytes
          || (found->score.memory_bytes == now->score.memory_bytes && found->point >= now->point)))
    return;
  result->closest = *found;
  result->is_closest = TRUE;
}

/* What rules and bounds say of the points from `first` on. */
static void
filter_chunk (Work *work, guint64 first, guint64 end, GArray *kept, PlanSearchResult *counts)
{
  const PlanSearch *s = work->search;
  for (guint64 point = first; point < end; point++)
    {
      Plan plan, resolved;
      const PlanStack *stack = NULL;
      if (!plan_space_at (s->space, point, &plan)
          || !plan_resolve (&plan, s->model, s->cluster, &resolved, NULL)
          || !(stack = plan_stack_of (&resolved, s->cluster->kind, NULL)))
        {
          counts->by_rule++;
          continue;
        }
      const Candidate candidate
          = { .point = point,
              .memory_bytes = plan_bound_memory (s->model, s->cluster, &resolved, stack),
              .time_ns = plan_bound_time_ns (s->model, s->cluster, &resolved) };
      if (candidate.memory_bytes <= s->memory_bytes)
        {
          g_array_append_val (kept, candidate);
          continue;
        }
      counts->by_memory++;
      const PlanFound closest = { .point = point,
                                  .plan = resolved,
                                  .score = { candidate.time_ns, candidate.memory_bytes } };
      consider_closest (counts, &closest);
    }
}

static gpointer
filter_thread (gpointer data)
{
  Work *work = data;
  const guint64 total = work->result->total;
  g_autoptr (GArray) kept = g_array_new (FALSE, FALSE, sizeof (Candidate));
  PlanSearchResult counts = { 0 };
  for (;;)
    {
      g_mutex_lock (&work->lock);
      const guint64 first = work->next;
      work->next = MIN (total, first + CHUNK);
      g_mutex_unlock (&work->lock);
      if (first >= total)
        break;
      filter_chunk (work, first, MIN (total, first + CHUNK), kept, &counts);
    }
  g_mutex_lock (&work->lock);
  g_array_append_vals (work->candidates, kept->data, kept->len);
  work->result->by_rule += counts.by_rule;
  work->result->by_memory += counts.by_memory;
  if (counts.is_closest)
    consider_closest (work->result, &counts.closest);
  g_mutex_unlock (&work->lock);
  return NULL;
}

/* The K-th best distinct time so far. */
static void
update_worst (Work *work)
{
  GArray *found = work->result->found;
  const guint k = work->search->best;
  g_autofree gint64 *best = g_new (gint64, k);
  guint n = 0;
  for (guint i = 0; i < found->len; i++)
    {
      const gint64 time_ns = g_array_index (found, PlanFound, i).score.time_ns;
      guint at = 0;
      while (at < n && best[at] < time_ns)
        at++;
      if ((at < n && best[at] == time_ns) || at == k)
        continue;
      n = MIN (n + 1, k);
      memmove (&best[at + 1], &best[at], (n - at - 1) * sizeof *best);
      best[at] = time_ns;
    }
  work->worst_ns = n == k ? best[k - 1] : G_MAXINT64;
}

/* Neither among the best any more, nor on the front. */
static gboolean
is_beaten (const Work *work, const Candidate *candidate)
{
  if (candidate->time_ns <= work->worst_ns)
    return FALSE;
  for (guint i = 0; i < work->result->found->len; i++)
    {
      const PlanScore *score = &g_array_index (work->result->found, PlanFound, i).score;
      if (score->time_ns <= candidate->time_ns && score->memory_bytes <= candidate->memory_bytes)
        return TRUE;
    }
  return FALSE;
}

/* The next candidate that is worth scoring; FALSE when there is none. */
static gboolean
take_candidate (Work *work, Candidate *out)
{
  PlanSearchResult *result = work->result;
  while (work->next < work->candidates->len && !work->is_stopped)
    {
      *out = g_array_index (work->candidates, Candidate, work->next++);
      if (!is_beaten (work, out))
        return TRUE;
      result->by_bound++;
    }
  return FALSE;
}

static void
note_score (Work *work, const PlanFound *found, gboolean ok)
{
  const PlanSearch *s = work->search;
  PlanSearchResult *result = work->result;
  result->by_simulation++;
  if (ok && found->score.memory_bytes <= s->memory_bytes)
    {
      g_array_append_val (result->found, *found);
      update_worst (work);
    }
  else if (ok)
    consider_closest (result, found);
  const guint64 done = result->total - (work->candidates->len - work->next);
  if (s->progress && !s->progress (done, result->total, s->user_data))
    work->is_stopped = TRUE;
}

static gpointer
score_thread (gpointer data)
{
  Work *work = data;
  const PlanSearch *s = work->search;
  Candidate candidate;
  g_mutex_lock (&work->lock);
  while (take_candidate (work, &candidate))
    {
      PlanFound found = { .point = candidate.point };
      Plan plan;
      g_mutex_unlock (&work->lock);
      const gboolean ok = plan_space_at (s->space, candidate.point, &plan)
                          && plan_resolve (&plan, s->model, s->cluster, &found.plan, NULL)
                          && s->score (&found.plan, s->user_data, &found.score);
      g_mutex_lock (&work->lock);
      note_score (work, &found, ok);
    }
  g_mutex_unlock (&work->lock);
  return NULL;
}

static void
run_threads (Work *work, GThreadFunc function)
{
  const guint n = MAX (work->search->threads, 1);
  g_autofree GThread **threads = g_new (GThread *, n);
  work->next = 0;
  for (guint i = 0; i < n; i++)
    threads[i] = g_thread_new ("search", function, work);
  for (guint i = 0; i < n; i++)
    g_thread_join (threads[i]);
}

void
plan_search_run (const PlanSearch *self, PlanSearchResult *out_result)
{
  *out_result = (PlanSearchResult){ .total = plan_space_size (self->space) };
  out_result->found = g_array_new (FALSE, FALSE, sizeof (PlanFound));
  g_autoptr (GArray) candidates = g_array_new (FALSE, FALSE, sizeof (Candidate));
  Work work
      = { .search = self, .result = out_result, .candidates = candidates, .worst_ns = G_MAXINT64 };
  g_mutex_init (&work.lock);
  run_threads (&work, filter_thread);
  g_array_sort (candidates, compare_candidates);
  run_threads (&work, score_thread);
  g_mutex_clear (&work.lock);
  g_array_sort (out_result->found, compare_found);
  out_result->is_closest = out_result->is_closest && out_result->found->len == 0;
  out_result->is_whole = !work.is_stopped;
}

GArray *
plan_search_front (const PlanSearchResult *self)
{
  GArray *front = g_array_new (FALSE, FALSE, sizeof (guint));
  guint64 least = G_MAXUINT64;
  for (guint i = 0; i < self->found->len; i++)
    {
      const PlanScore *score = &g_array_index (self->found, PlanFound, i).score;
      if (score->memory_bytes >= least)
        continue;
      least = score->memory_bytes;
      g_array_append_val (front, i);
    }
  return front;
}
