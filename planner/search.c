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

/* Points that differ by nothing that a micro batch computes. */
typedef struct
{
  guint64 index;
  gint64 least; /* time of all its plans; memory, where that is looked for */
} Block;

typedef struct
{
  const PlanSearch *search;
  PlanSearchResult *result;
  GArray *blocks;     /* Block: those that may matter, best first */
  GArray *candidates; /* by least time */
  GMutex lock;
  guint64 next, end;        /* blocks, then candidates */
  gint64 worst_ns, best_ns; /* the Kth best time so far, and the best; G_MAXINT64: none */
  gboolean is_plain;        /* of points that belong on the front, too */
  gboolean is_stopped;
} Work;

struct _PlanInquiry
{
  Work *work;
  Candidate candidate;
  guint64 *decided; /* counts what decided the plan before it was simulated; NULL: nothing did */
};

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
compare_blocks (gconstpointer a, gconstpointer b)
{
  const Block *x = a, *y = b;
  if (x->least != y->least)
    return x->least < y->least ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
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

static guint64
leanest_bytes (const PlanSearch *s, const Plan *plan)
{
  Plan lean, resolved;
  const PlanStack *stack;
  plan_bound_leanest (plan, &lean);
  return plan_resolve (&lean, s->model, s->cluster, &resolved, NULL)
                 && (stack = plan_stack_of (&resolved, s->cluster->kind, NULL))
             ? plan_bound_memory (s->model, s->cluster, &resolved, stack)
             : 0;
}

/* Slower than anything that is looked for: neither among the K best, nor on the front. */
static gboolean
is_too_slow (const Work *work, gint64 time_ns)
{
  if (time_ns <= work->worst_ns)
    return FALSE;
  return !work->is_plain || work->search->least_memory
         || (double)time_ns > (double)work->best_ns * work->search->front;
}

/* The first plan of a block that rules allow. */
static gboolean
first_legal (const PlanSearch *s, guint64 block, Plan *out_resolved)
{
  const guint64 size = plan_space_block_size (s->space);
  for (guint64 point = block * size; point < (block + 1) * size; point++)
    {
      Plan plan;
      if (plan_space_at (s->space, point, &plan)
          && plan_resolve (&plan, s->model, s->cluster, out_resolved, NULL))
        return TRUE;
    }
  return FALSE;
}

/* Bounds a block as a whole; FALSE where none of it is left. */
static gboolean
bound_block (const Work *work, guint64 index, Block *out, PlanSearchResult *counts)
{
  const PlanSearch *s = work->search;
  const guint64 size = plan_space_block_size (s->space);
  Plan plan, resolved;
  plan_space_at (s->space, index * size, &plan);
  const guint64 bytes = leanest_bytes (s, &plan);
  *out = (Block){ index, (gint64)bytes };
  if (bytes > s->memory_bytes)
    counts->by_memory += size;
  else if (s->least_memory)
    return TRUE;
  else if (!first_legal (s, index, &resolved))
    counts->by_rule += size;
  else
    {
      const gint64 enough_ns = work->is_plain ? G_MAXINT64 : work->worst_ns;
      out->least = MAX (s->floor ? s->floor (&resolved, enough_ns, s->user_data) : 0,
                        plan_bound_time_ns (s->model, s->cluster, &resolved));
      return TRUE;
    }
  return FALSE;
}

static gboolean
take_next (Work *work, guint64 *out)
{
  g_mutex_lock (&work->lock);
  *out = work->next;
  work->next = MIN (work->end, *out + 1);
  g_mutex_unlock (&work->lock);
  return *out < work->end;
}

static void
add_counts (Work *work, const PlanSearchResult *counts)
{
  work->result->by_rule += counts->by_rule;
  work->result->by_memory += counts->by_memory;
  work->result->by_bound += counts->by_bound;
}

static gpointer
bound_thread (gpointer data)
{
  Work *work = data;
  g_autoptr (GArray) kept = g_array_new (FALSE, FALSE, sizeof (Block));
  PlanSearchResult counts = { 0 };
  for (guint64 index; take_next (work, &index);)
    {
      Block block;
      if (bound_block (work, index, &block, &counts))
        g_array_append_val (kept, block);
    }
  g_mutex_lock (&work->lock);
  g_array_append_vals (work->blocks, kept->data, kept->len);
  add_counts (work, &counts);
  g_mutex_unlock (&work->lock);
  return NULL;
}

/* A bound that was asked for within the block, of bytes or nanoseconds. */
typedef struct
{
  guint hash;
  guint64 least;
  Plan key;
} Bound;

/* Those of the block that is looked into. */
typedef struct
{
  GArray *memory, *time; /* Bound */
} Bounds;

guint
plan_search_key_hash (gconstpointer data)
{
  const Plan *plan = data;
  guint64 hash = 0;
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    hash
        = (hash ^ (guint64)plan->value[f]) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15) + (hash >> 31);
  return (guint)(hash >> 32);
}

gboolean
plan_search_key_equal (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (Plan)) == 0;
}

/* The bound of plans with that key; NULL: `out_new` is a place for it. */
static const Bound *
find_bound (GArray *bounds, const Plan *key, Bound **out_new)
{
  const guint hash = plan_search_key_hash (key);
  for (guint i = 0; i < bounds->len; i++)
    {
      const Bound *known = &g_array_index (bounds, Bound, i);
      if (known->hash == hash && plan_search_key_equal (&known->key, key))
        return known;
    }
  g_array_set_size (bounds, bounds->len + 1);
  *out_new = &g_array_index (bounds, Bound, bounds->len - 1);
  **out_new = (Bound){ .hash = hash, .key = *key };
  return NULL;
}

/* Most plans of a block share their bound with some others. */
static guint64
bound_bytes (const PlanSearch *s, const Plan *resolved, const PlanStack *stack, Bounds *bounds)
{
  Plan key = *resolved;
  Bound *bound;
  plan_bound_distil (&key);
  const Bound *known = find_bound (bounds->memory, &key, &bound);
  if (known)
    return known->least;
  return bound->least = plan_bound_memory (s->model, s->cluster, resolved, stack);
}

static gint64
bound_ns (const PlanSearch *s, const Plan *resolved, gint64 block_ns, Bounds *bounds)
{
  Plan key;
  Bound *bound;
  if (s->least_memory || !s->plan_floor)
    return block_ns;
  plan_bound_distil_exchange (resolved, &key);
  const Bound *known = find_bound (bounds->time, &key, &bound);
  if (!known)
    bound->least = (guint64)MAX (block_ns, s->plan_floor (resolved, G_MAXINT64, s->user_data));
  return (gint64)(known ? known : bound)->least;
}

/* What rules and bounds say of one point. */
static void
filter_point (const Work *work, const Block *block, guint64 point, Bounds *bounds, GArray *kept,
              PlanSearchResult *counts)
{
  const PlanSearch *s = work->search;
  Plan plan, resolved;
  const PlanStack *stack = NULL;
  if (!plan_space_at (s->space, point, &plan)
      || !plan_resolve (&plan, s->model, s->cluster, &resolved, NULL)
      || !(stack = plan_stack_of (&resolved, s->cluster->kind, NULL)))
    {
      counts->by_rule++;
      return;
    }
  Candidate candidate = { .point = point };
  candidate.memory_bytes = bound_bytes (s, &resolved, stack, bounds);
  if (candidate.memory_bytes > s->memory_bytes)
    {
      counts->by_memory++;
      return;
    }
  candidate.time_ns = s->least_memory ? (gint64)candidate.memory_bytes
                                      : bound_ns (s, &resolved, block->least, bounds);
  if (!s->least_memory && is_too_slow (work, candidate.time_ns))
    counts->by_bound++;
  else
    g_array_append_val (kept, candidate);
}

static gpointer
filter_thread (gpointer data)
{
  Work *work = data;
  const guint64 size = plan_space_block_size (work->search->space);
  g_autoptr (GArray) kept = g_array_new (FALSE, FALSE, sizeof (Candidate));
  g_autoptr (GArray) memory = g_array_new (FALSE, FALSE, sizeof (Bound));
  g_autoptr (GArray) time = g_array_new (FALSE, FALSE, sizeof (Bound));
  Bounds bounds = { memory, time };
  PlanSearchResult counts = { 0 };
  for (guint64 b; take_next (work, &b);)
    {
      g_array_set_size (memory, 0);
      g_array_set_size (time, 0);
      const Block *block = &g_array_index (work->blocks, Block, b);
      if (is_too_slow (work, block->least))
        counts.by_bound += size;
      else
        for (guint64 i = 0; i < size; i++)
          filter_point (work, block, block->index * size + i, &bounds, kept, &counts);
    }
  g_mutex_lock (&work->lock);
  g_array_append_vals (work->candidates, kept->data, kept->len);
  add_counts (work, &counts);
  g_mutex_unlock (&work->lock);
  return NULL;
}

/* The K-th best distinct time so far: each the least that is apart from the one before. */
static void
update_worst (Work *work)
{
  const GArray *found = work->result->found;
  const PlanSearch *s = work->search;
  gint64 last = -1;
  for (guint k = 0; k < s->best; k++)
    {
      gint64 next = G_MAXINT64;
      for (guint i = 0; i < found->len; i++)
        {
          const gint64 time_ns = g_array_index (found, PlanFound, i).score.time_ns;
          if (time_ns < next && plan_search_is_apart (s->apart, last, time_ns))
            next = time_ns;
        }
      work->best_ns = k == 0 ? next : work->best_ns;
      work->worst_ns = last = next;
      if (next == G_MAXINT64)
        return;
    }
}

/* Neither among the best any more, nor on the front. */
static gboolean
is_beaten (const Work *work, const Candidate *candidate)
{
  if (candidate->time_ns <= work->worst_ns)
    return FALSE;
  if (is_too_slow (work, candidate->time_ns))
    return TRUE;
  for (guint i = 0; i < work->result->found->len; i++)
    {
      const PlanScore *score = &g_array_index (work->result->found, PlanFound, i).score;
      if (score->time_ns <= candidate->time_ns && score->memory_bytes <= candidate->memory_bytes
          && (score->time_ns < candidate->time_ns || score->memory_bytes < candidate->memory_bytes))
        return TRUE; /* what costs the same may be the lower point */
    }
  return FALSE;
}

gboolean
plan_inquiry_matters (const PlanInquiry *self, gint64 time_ns)
{
  Candidate candidate = self->candidate;
  candidate.time_ns = time_ns;
  g_mutex_lock (&self->work->lock);
  const gboolean matters = !is_beaten (self->work, &candidate);
  g_mutex_unlock (&self->work->lock);
  return matters;
}

gboolean
plan_inquiry_may_fit (PlanInquiry *self, guint64 memory_bytes)
{
  PlanSearchResult *result = self->work->result;
  Candidate *candidate = &self->candidate;
  candidate->memory_bytes = MAX (candidate->memory_bytes, memory_bytes);
  if (candidate->memory_bytes > self->work->search->memory_bytes)
    self->decided = &result->by_memory;
  else if (!plan_inquiry_matters (self, candidate->time_ns))
    self->decided = &result->by_bound;
  return !self->decided;
}

guint64
plan_inquiry_enough_bytes (const PlanInquiry *self, gint64 time_ns)
{
  const Work *work = self->work;
  guint64 enough = work->search->memory_bytes;
  g_mutex_lock (&self->work->lock);
  for (guint i = 0; i < work->result->found->len && time_ns > work->worst_ns; i++)
    {
      const PlanScore *score = &g_array_index (work->result->found, PlanFound, i).score;
      if (score->time_ns <= time_ns) /* what costs the same may be the lower point */
        enough = MIN (enough, score->memory_bytes - (score->time_ns < time_ns));
    }
  g_mutex_unlock (&self->work->lock);
  return enough;
}

/* The next candidate that is worth scoring; FALSE when there is none. */
static gboolean
take_candidate (Work *work, Candidate *out)
{
  PlanSearchResult *result = work->result;
  while (work->next < work->end && !work->is_stopped)
    {
      *out = g_array_index (work->candidates, Candidate, work->next++);
      if (!is_beaten (work, out))
        return TRUE;
      result->by_bound++;
    }
  return FALSE;
}

static void
note_score (const PlanInquiry *inquiry, const PlanFound *found, gboolean ok)
{
  Work *work = inquiry->work;
  const PlanSearch *s = work->search;
  PlanSearchResult *result = work->result;
  ++*(inquiry->decided ? inquiry->decided : &result->by_simulation);
  if (ok && found->score.memory_bytes <= s->memory_bytes)
    {
      g_array_append_val (result->found, *found);
      if (found->score.time_ns < work->worst_ns)
        update_worst (work);
    }
  if (s->one_is_enough && result->found->len > 0)
    work->is_stopped = TRUE;
  const guint64 done
      = result->by_rule + result->by_memory + result->by_bound + result->by_simulation;
  if (s->progress && !s->progress (done, result->total, s->user_data))
    work->is_stopped = TRUE;
}

static gpointer
score_thread (gpointer data)
{
  Work *work = data;
  const PlanSearch *s = work->search;
  PlanInquiry inquiry = { .work = work };
  g_mutex_lock (&work->lock);
  while (take_candidate (work, &inquiry.candidate))
    {
      PlanFound found = { .point = inquiry.candidate.point };
      Plan plan;
      inquiry.decided = NULL;
      g_mutex_unlock (&work->lock);
      const gboolean ok = plan_space_at (s->space, found.point, &plan)
                          && plan_resolve (&plan, s->model, s->cluster, &found.plan, NULL)
                          && s->score (&found.plan, &inquiry, s->user_data, &found.score);
      g_mutex_lock (&work->lock);
      note_score (&inquiry, &found, ok);
    }
  g_mutex_unlock (&work->lock);
  return NULL;
}

static void
run_threads (Work *work, GThreadFunc function, guint64 first, guint64 end)
{
  const guint n = MAX (work->search->threads, 1);
  g_autofree GThread **threads = g_new (GThread *, n);
  work->next = first;
  work->end = end;
  for (guint i = 0; i < n; i++)
    threads[i] = g_thread_new ("search", function, work);
  for (guint i = 0; i < n; i++)
    g_thread_join (threads[i]);
}

#define SLICE 2 /* blocks that are looked into before what was found is asked again */

/* Blocks are bounded; then, best first, they are filtered, and what is left is scored. */
static void
run_blocks (Work *work, guint64 first, guint64 end)
{
  g_array_set_size (work->blocks, 0);
  run_threads (work, bound_thread, first, end);
  g_array_sort (work->blocks, compare_blocks);
  for (guint64 b = 0; b < work->blocks->len && !work->is_stopped; b += SLICE)
    {
      g_array_set_size (work->candidates, 0);
      run_threads (work, filter_thread, b, MIN (b + SLICE, work->blocks->len));
      g_array_sort (work->candidates, compare_candidates);
      run_threads (work, score_thread, 0, work->candidates->len);
    }
}

/* Of points that are not plain, which ones were scored without being among the best depends on what
 * was found first. */
static void
forget_chances (const Work *work, guint64 first)
{
  GArray *found = work->result->found;
  for (guint i = found->len; i-- > 0;)
    {
      const PlanFound *f = &g_array_index (found, PlanFound, i);
      if (f->point >= first && f->score.time_ns > work->worst_ns)
        g_array_remove_index_fast (found, i);
    }
}

void
plan_search_run (const PlanSearch *self, PlanSearchResult *out_result)
{
  const guint64 plain = plan_space_n_plain_blocks (self->space);
  *out_result = (PlanSearchResult){ .total = plan_space_size (self->space) };
  out_result->found = g_array_new (FALSE, FALSE, sizeof (PlanFound));
  g_autoptr (GArray) blocks = g_array_new (FALSE, FALSE, sizeof (Block));
  g_autoptr (GArray) candidates = g_array_new (FALSE, FALSE, sizeof (Candidate));
  Work work = { .search = self,
                .result = out_result,
                .blocks = blocks,
                .candidates = candidates,
                .worst_ns = G_MAXINT64,
                .best_ns = G_MAXINT64,
                .is_plain = TRUE };
  g_mutex_init (&work.lock);
  run_blocks (&work, 0, plain);
  /* The others come when the plain ones have set the mark. */
  work.is_plain = FALSE;
  if (!work.is_stopped)
    run_blocks (&work, plain, out_result->total / plan_space_block_size (self->space));
  g_mutex_clear (&work.lock);
  forget_chances (&work, plain * plan_space_block_size (self->space));
  g_array_sort (out_result->found, compare_found);
  out_result->front_ns = work.best_ns == G_MAXINT64
                             ? 0
                             : (gint64)MIN ((double)work.best_ns * MAX (self->front, 1), 0x1p62);
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
      if (score->memory_bytes >= least || score->time_ns > self->front_ns)
        continue;
      least = score->memory_bytes;
      g_array_append_val (front, i);
    }
  return front;
}
