/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over the blocks of a space. All blocks are bounded roughly first
 * (bound_block) and wait in the order of their bounds. Threads take the best block and do what is
 * due: refine its bound, filter its points by rules and bounds (filter_point), or score the best of
 * the candidates that are left; the block then waits again, by its new bound. A plan is dropped
 * only where a lower bound, or its own score, shows that it can be no answer (is_too_slow,
 * is_beaten), so the order of work changes how much is simulated and not what is found. */
#include "config.h"

#include "planner/search/search.h"

#include "planner/search/bound.h"

#include <string.h>

/* A point that no rule or bound has excluded yet, with its lower bounds. */
typedef struct
{
  guint64 point, memory_bytes; /* lower bound */
  gint64 time_ns;              /* lower bound, */
  gboolean is_timed;           /* or the step time */
} Candidate;

/* A block of points (see plan_space_block_size), or what is left of it. */
typedef struct
{
  guint64 index;
  guint64 first; /* its first legal point */
  gint64 least;  /* lower bound of the time of all its plans, or of their memory in a search for the
                    least */
  guint64 bytes; /* lower bound of their memory */
  gboolean is_rough;  /* the bound can be improved by more work */
  GArray *candidates; /* Candidate: those that are left, best last; NULL: it is not filtered yet */
} Block;

/* The step times that decide whether a plan can be an answer. */
typedef struct
{
  gint64 worst_ns, best_ns; /* the Kth best time so far, and the best; G_MAXINT64: none yet */
  gboolean is_plain; /* the points in work are plain, so a place on the Pareto front counts, too */
} Mark;

typedef struct
{
  const PlanSearch *search;
  PlanSearchResult *result;
  PlanLean lean;     /* the leanest choices of the space */
  GSequence *blocks; /* Block: those that wait, best first */
  GArray *too_big;   /* Candidate: those that do not fit but may as slim plans (plan_space_slim) */
  gboolean is_slim;  /* candidates stand for slim plans */
  GMutex lock;
  GCond is_done;     /* signalled whenever a thread is done with a block */
  guint n_working;   /* threads that are at work on a block, which may have to wait again */
  guint64 next, end; /* range of the blocks that are not bounded yet */
  Mark mark;
  gboolean is_stopped;
} Work;

struct _PlanInquiry
{
  Work *work;
  Candidate candidate;
  guint64 *decided;  /* the counter of the reason why the plan was excluded before its simulation;
                        NULL: it was not excluded */
  gboolean is_later; /* it is to be scored to the end later */
};

void
plan_search_result_clear (PlanSearchResult *self)
{
  g_clear_pointer (&self->found, g_array_unref);
}

/* Sorts the best to the end, from where take_candidate takes it. */
static int
compare_candidates (gconstpointer a, gconstpointer b)
{
  const Candidate *x = b, *y = a;
  if (x->time_ns != y->time_ns)
    return x->time_ns < y->time_ns ? -1 : 1;
  if (x->memory_bytes != y->memory_bytes)
    return x->memory_bytes < y->memory_bytes ? -1 : 1;
  return x->point < y->point ? -1 : x->point > y->point;
}

static void
block_free (gpointer data)
{
  Block *block = data;
  g_clear_pointer (&block->candidates, g_array_unref);
  g_free (block);
}

static void
free_waiting (gpointer block, gpointer unused)
{
  block_free (block);
}

static int
compare_blocks (gconstpointer a, gconstpointer b, gpointer unused)
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

static PlanCase *
case_of (const PlanSearch *s, const Plan *plan)
{
  return plan_case_new (s->model, s->cluster, plan, s->asked, NULL);
}

/* The leanest choices of a space. A field that no axis sets keeps its value in all plans, so that
 * the bound is that of plans that the stack has. */
static PlanLean
lean_of (const PlanSpace *space)
{
  PlanLean lean
      = { .strategy = PLAN_UNSET,
          .has_bf16 = plan_space_chooses (space, PLAN_MAIN_GRADS, PLAN_MAIN_GRADS_BF16),
          .has_bf16_comm = plan_space_chooses (space, PLAN_GRAD_COMM, PLAN_GRAD_COMM_BF16),
          .moment = PLAN_UNSET };
  for (gint64 s = 0; s < PLAN_STRATEGY_N_VALUES; s++)
    if (plan_space_chooses (space, PLAN_STRATEGY, s))
      lean.strategy = s;
  for (gint64 m = 0; m < PLAN_EXP_AVG_N_VALUES; m++)
    if (plan_space_chooses (space, PLAN_EXP_AVG, m)
        || plan_space_chooses (space, PLAN_EXP_AVG_SQ, m))
      lean.moment = m;
  return lean;
}

static guint64
leanest_bytes (const PlanSearch *s, const PlanLean *lean, const Plan *plan)
{
  Plan leanest;
  plan_bound_leanest (plan, lean, &leanest);
  g_autoptr (PlanCase) of = case_of (s, &leanest);
  return of ? plan_bound_memory_of_loss (of) : 0;
}

/* Whether a plan that takes `time_ns` can be neither among the K best nor on the Pareto front. */
static gboolean
is_too_slow (const PlanSearch *s, const Mark *mark, gint64 time_ns)
{
  if (time_ns <= mark->worst_ns)
    return FALSE;
  return !mark->is_plain || s->minimizes_memory
         || (double)time_ns > (double)mark->best_ns * s->front;
}

/* Whether there is a legal plan at a point of a block that plan_resolve_block allows. */
static gboolean
legal_at (const PlanSearch *s, guint64 point, Plan *out_resolved)
{
  Plan plan;
  return plan_space_at (s->space, point, &plan)
         && plan_resolve_in_block (&plan, s->model, s->cluster, out_resolved)
         && plan_space_admits (s->space, out_resolved, NULL);
}

/* Finds the first legal plan of a block that plan_resolve_block allows. */
static gboolean
first_legal (const PlanSearch *s, guint64 block, guint64 *out_point, Plan *out_resolved)
{
  const guint64 size = plan_space_block_size (s->space);
  for (*out_point = block * size; *out_point < (block + 1) * size; ++*out_point)
    if (legal_at (s, *out_point, out_resolved))
      return TRUE;
  return FALSE;
}

/* A lower bound of the time of all plans of a block, from one of them. That plan is given bf16
 * gradients where other plans of the block may have them, since those take least time. */
static gint64
block_floor_ns (const PlanSearch *s, const Plan *resolved, gint64 enough_ns)
{
  Plan narrow = *resolved;
  if (plan_space_chooses (s->space, PLAN_MAIN_GRADS, PLAN_MAIN_GRADS_BF16))
    {
      narrow.value[PLAN_MAIN_GRADS] = PLAN_MAIN_GRADS_BF16;
      narrow.value[PLAN_GRAD_COMM] = PLAN_GRAD_COMM_BF16;
    }
  const gint64 floor_ns = s->floor ? s->floor (&narrow, enough_ns, s->user_data) : 0;
  const gint64 peak_ns = plan_bound_time_ns (s->model, s->cluster, resolved);
  return MAX (floor_ns, peak_ns);
}

/* Bounds a block roughly. FALSE where no plan of it is legal and fits. Rules are asked first, as
 * they cost less than a bound. */
static gboolean
bound_block (const Work *work, guint64 index, Block *out, PlanSearchResult *counts)
{
  const PlanSearch *s = work->search;
  const guint64 size = plan_space_block_size (s->space);
  Plan plan, resolved;
  guint64 first = 0;
  plan_space_at (s->space, index * size, &plan);
  if (!plan_resolve_block (&plan, s->model, s->cluster)
      || (!s->minimizes_memory && !first_legal (s, index, &first, &resolved)))
    {
      counts->by_rule += size;
      return FALSE;
    }
  const guint64 bytes = leanest_bytes (s, &work->lean, &plan);
  *out = (Block){ .index = index, .least = (gint64)bytes, .bytes = bytes };
  if (bytes > s->memory_bytes)
    {
      counts->by_memory += size;
      return FALSE;
    }
  if (!s->minimizes_memory)
    *out = (Block){ index, first, block_floor_ns (s, &resolved, 0), bytes, TRUE, NULL };
  return TRUE;
}

static void
refine_block (const PlanSearch *s, Block *block)
{
  Plan resolved;
  if (legal_at (s, block->first, &resolved))
    {
      const gint64 floor_ns = block_floor_ns (s, &resolved, G_MAXINT64);
      block->least = MAX (block->least, floor_ns);
    }
  block->is_rough = FALSE;
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

/* Adds a thread's counters to the result. The caller holds the lock. */
static void
add_counts (Work *work, const PlanSearchResult *counts)
{
  work->result->by_rule += counts->by_rule;
  work->result->by_memory += counts->by_memory;
  work->result->by_bound += counts->by_bound;
}

/* Lets a block wait. The caller holds the lock. */
static void
put (Work *work, Block *block)
{
  g_sequence_insert_sorted (work->blocks, block, compare_blocks, NULL);
}

/* The best of the blocks that wait; NULL where none does. The caller holds the lock. */
static Block *
first_waiting (const Work *work)
{
  GSequenceIter *first = g_sequence_get_begin_iter (work->blocks);
  return g_sequence_iter_is_end (first) ? NULL : g_sequence_get (first);
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
  for (guint i = 0; i < kept->len; i++)
    put (work, g_memdup2 (&g_array_index (kept, Block, i), sizeof (Block)));
  add_counts (work, &counts);
  g_mutex_unlock (&work->lock);
  return NULL;
}

/* A bound of bytes or nanoseconds, kept for all points of a block with the same key. */
typedef struct
{
  guint hash;
  guint64 least;
  Plan key;
} Bound;

/* The bounds of the block that a thread is filtering. */
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

/* The bound kept under a key; NULL where none is, and then `out_new` is where to keep it. */
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

/* The memory bound of a plan that breaks no rule, but whose stack is not modelled. */
#define NO_CASE G_MAXUINT64

/* A lower bound of a plan's memory that many plans of a block share, so that a case is made for the
 * first of them only. */
static guint64
bound_bytes (const PlanSearch *s, const Plan *resolved, Bounds *bounds)
{
  Plan key = *resolved;
  Bound *bound;
  plan_bound_distil (&key);
  const Bound *known = find_bound (bounds->memory, &key, &bound);
  if (known)
    return known->least;
  g_autoptr (PlanCase) of = case_of (s, resolved);
  return bound->least = of ? plan_bound_memory_of_loss (of) : NO_CASE;
}

static gint64
bound_ns (const PlanSearch *s, const Plan *resolved, gint64 block_ns, Bounds *bounds)
{
  Plan key;
  Bound *bound;
  if (s->minimizes_memory || !s->plan_floor)
    return block_ns;
  plan_bound_distil_exchange (resolved, &key);
  const Bound *known = find_bound (bounds->time, &key, &bound);
  if (!known)
    {
      const gint64 floor_ns = s->plan_floor (resolved, G_MAXINT64, s->user_data);
      bound->least = (guint64)MAX (block_ns, floor_ns);
    }
  return (gint64)(known ? known : bound)->least;
}

/* Applies rules and bounds to one point. A search does so for millions of points; cases are
 * therefore made only where a bound is not known yet. */
static void
filter_point (const PlanSearch *s, const Mark *mark, const Block *block, guint64 point,
              Bounds *bounds, GArray *kept, PlanSearchResult *counts)
{
  Plan resolved;
  Candidate candidate = { .point = point };
  if (!legal_at (s, point, &resolved)
      || (candidate.memory_bytes = bound_bytes (s, &resolved, bounds)) == NO_CASE)
    {
      counts->by_rule++;
      return;
    }
  if (candidate.memory_bytes > s->memory_bytes)
    {
      counts->by_memory++;
      return;
    }
  candidate.time_ns = s->minimizes_memory ? (gint64)candidate.memory_bytes
                                          : bound_ns (s, &resolved, block->least, bounds);
  if (!s->minimizes_memory && is_too_slow (s, mark, candidate.time_ns))
    counts->by_bound++;
  else
    g_array_append_val (kept, candidate);
}

/* The candidates of a block, sorted by their bounds. */
static GArray *
look_into (const PlanSearch *s, const Mark *mark, const Block *block, Bounds *bounds,
           PlanSearchResult *counts)
{
  const guint64 size = plan_space_block_size (s->space);
  GArray *kept = g_array_new (FALSE, FALSE, sizeof (Candidate));
  g_array_set_size (bounds->memory, 0);
  g_array_set_size (bounds->time, 0);
  for (guint64 i = 0; i < size; i++)
    filter_point (s, mark, block, block->index * size + i, bounds, kept, counts);
  g_array_sort (kept, compare_candidates);
  return kept;
}

/* Finds the K-th best distinct time of the plans found so far. The first distinct time is the best;
 * each later one is the least that is `apart` from the one before it. */
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
      work->mark.best_ns = k == 0 ? next : work->mark.best_ns;
      work->mark.worst_ns = last = next;
      if (next == G_MAXINT64)
        return;
    }
}

/* Whether a candidate can no longer be among the K best or on the Pareto front. */
static gboolean
is_beaten (const Work *work, const Candidate *candidate)
{
  if (candidate->time_ns <= work->mark.worst_ns)
    return FALSE;
  if (is_too_slow (work->search, &work->mark, candidate->time_ns))
    return TRUE;
  for (guint i = 0; i < work->result->found->len; i++)
    {
      const PlanScore *score = &g_array_index (work->result->found, PlanFound, i).score;
      if (score->time_ns <= candidate->time_ns && score->memory_bytes <= candidate->memory_bytes
          && (score->time_ns < candidate->time_ns || score->memory_bytes < candidate->memory_bytes))
        return TRUE; /* with both equal, the candidate may still win */
    }
  return FALSE;
}

gboolean
plan_inquiry_matters (const PlanInquiry *self, gint64 time_ns)
{
  Candidate candidate = self->candidate;
  candidate.time_ns
      = self->work->search->minimizes_memory ? (gint64)candidate.memory_bytes : time_ns;
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

gboolean
plan_inquiry_may_be_quick (PlanInquiry *self, gint64 time_ns)
{
  Candidate *candidate = &self->candidate;
  if (!self->work->search->minimizes_memory)
    candidate->time_ns = MAX (candidate->time_ns, time_ns);
  if (!plan_inquiry_matters (self, candidate->time_ns))
    self->decided = &self->work->result->by_bound;
  return !self->decided;
}

gboolean
plan_inquiry_comes_later (PlanInquiry *self, gint64 time_ns)
{
  Work *work = self->work;
  if (work->search->minimizes_memory)
    return FALSE;
  self->candidate.time_ns = time_ns;
  self->candidate.is_timed = TRUE;
  g_mutex_lock (&work->lock);
  const Block *next = first_waiting (work);
  self->is_later = next && next->least < time_ns;
  g_mutex_unlock (&work->lock);
  return self->is_later;
}

guint64
plan_inquiry_enough_bytes (const PlanInquiry *self, gint64 time_ns)
{
  const Work *work = self->work;
  guint64 enough = work->search->memory_bytes;
  g_mutex_lock (&self->work->lock);
  if (work->search->minimizes_memory)
    {
      enough = MIN (enough, (guint64)work->mark.worst_ns);
      time_ns = work->mark.worst_ns;
    }
  for (guint i = 0; i < work->result->found->len && time_ns > work->mark.worst_ns; i++)
    {
      const PlanScore *score = &g_array_index (work->result->found, PlanFound, i).score;
      if (score->time_ns <= time_ns) /* with both equal, the candidate may still win */
        enough = MIN (enough, score->memory_bytes - (score->time_ns < time_ns));
    }
  g_mutex_unlock (&self->work->lock);
  return enough;
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
      if (found->score.time_ns < work->mark.worst_ns)
        update_worst (work);
    }
  if (s->one_is_enough && result->found->len > 0)
    work->is_stopped = TRUE;
  const guint64 done
      = result->by_rule + result->by_memory + result->by_bound + result->by_simulation;
  if (s->progress && !s->progress (done, result->total, s->user_data))
    work->is_stopped = TRUE;
}

static gboolean
score_plan (const PlanSearch *s, const Plan *plan, PlanInquiry *inquiry, PlanFound *out)
{
  g_autoptr (PlanCase) of = case_of (s, plan);
  const gboolean ok = of && plan_space_admits (s->space, &of->plan, of)
                      && s->score (of, inquiry, s->user_data, &out->score);
  if (of)
    out->plan = of->plan;
  return ok;
}

/* Lets a candidate whose step time is known by now wait as a block by itself. */
static void
put_again (Work *work, const Candidate *candidate)
{
  const Block block = { .index = candidate->point / plan_space_block_size (work->search->space),
                        .least = candidate->time_ns,
                        .candidates = g_array_new (FALSE, FALSE, sizeof (Candidate)) };
  g_array_append_vals (block.candidates, candidate, 1);
  put (work, g_memdup2 (&block, sizeof block));
}

/* Scores a candidate, unless others have beaten it. */
static void
score (Work *work, const Candidate *candidate)
{
  const PlanSearch *s = work->search;
  const PlanInquiry start = { .work = work, .candidate = *candidate };
  PlanInquiry inquiry = start, other = start;
  PlanFound found = { .point = candidate->point }, leaner = found;
  Plan plan, slim;
  if (is_beaten (work, candidate))
    {
      ++*(candidate->is_timed ? &work->result->by_simulation : &work->result->by_bound);
      return;
    }
  g_mutex_unlock (&work->lock);
  plan_space_at (s->space, found.point, &plan);
  const gboolean may_slim = plan_space_slim (s->space, &plan, &slim) && !work->is_slim;
  gboolean ok = score_plan (s, work->is_slim ? &slim : &plan, &inquiry, &found);
  if (may_slim && s->minimizes_memory && score_plan (s, &slim, &other, &leaner)
      && (!ok || leaner.score.memory_bytes < found.score.memory_bytes))
    {
      found = leaner;
      inquiry = other;
      ok = TRUE;
    }
  g_mutex_lock (&work->lock);
  if (inquiry.is_later)
    put_again (work, &inquiry.candidate);
  else if (may_slim && !s->minimizes_memory
           && (inquiry.decided == &work->result->by_memory
               || found.score.memory_bytes > s->memory_bytes))
    g_array_append_val (work->too_big, *candidate);
  else
    note_score (&inquiry, &found, ok);
}

/* Scores the best candidate of a filtered block; the others wait on. */
static void
score_best (Work *work, Block *block)
{
  GArray *left = block->candidates;
  const Candidate best = g_array_index (left, Candidate, left->len - 1);
  g_array_set_size (left, left->len - 1);
  if (left->len > 0)
    {
      block->least = g_array_index (left, Candidate, left->len - 1).time_ns;
      put (work, block);
    }
  else
    block_free (block);
  score (work, &best);
}

/* Refines the bound of a block or, where that is done, filters it. */
static void
look_into_block (Work *work, Block *block, Bounds *bounds)
{
  const Candidate best = { .memory_bytes = block->bytes, .time_ns = block->least };
  const Mark mark = work->mark;
  PlanSearchResult counts = { 0 };
  if (is_beaten (work, &best)) /* the best that a plan of the block could be */
    {
      work->result->by_bound += plan_space_block_size (work->search->space);
      block_free (block);
      return;
    }
  g_mutex_unlock (&work->lock);
  if (block->is_rough)
    refine_block (work->search, block);
  else
    block->candidates = look_into (work->search, &mark, block, bounds, &counts);
  const GArray *left = block->candidates;
  if (left && left->len > 0)
    block->least = g_array_index (left, Candidate, left->len - 1).time_ns;
  g_mutex_lock (&work->lock);
  if (left && left->len == 0)
    block_free (block);
  else
    put (work, block);
  add_counts (work, &counts);
}

/* Takes the best block and works on it, again and again. Where none waits, waits for threads that
 * are still at work on one. */
static gpointer
score_thread (gpointer data)
{
  Work *work = data;
  g_autoptr (GArray) memory = g_array_new (FALSE, FALSE, sizeof (Bound));
  g_autoptr (GArray) time = g_array_new (FALSE, FALSE, sizeof (Bound));
  Bounds bounds = { memory, time };
  g_mutex_lock (&work->lock);
  while (!work->is_stopped)
    {
      Block *block = first_waiting (work);
      if (!block && work->n_working == 0)
        break;
      if (!block)
        {
          g_cond_wait (&work->is_done, &work->lock);
          continue;
        }
      g_sequence_remove (g_sequence_get_begin_iter (work->blocks));
      work->n_working++;
      if (block->candidates)
        score_best (work, block);
      else
        look_into_block (work, block, &bounds);
      work->n_working--;
      g_cond_broadcast (&work->is_done);
    }
  g_cond_broadcast (&work->is_done); /* after a stop nobody waits */
  g_mutex_unlock (&work->lock);
  return NULL;
}

static void
run_threads (Work *work, GThreadFunc function)
{
  const guint n = MAX (work->search->threads, 1);
  g_autofree GThread **threads = g_new (GThread *, n);
  for (guint i = 0; i < n; i++)
    threads[i] = g_thread_new ("search", function, work);
  for (guint i = 0; i < n; i++)
    g_thread_join (threads[i]);
}

/* Bounds all blocks, then filters them, best first, and scores their candidates. */
static void
run_blocks (Work *work, guint64 first, guint64 end)
{
  work->next = first;
  work->end = end;
  run_threads (work, bound_thread);
  run_threads (work, score_thread);
}

/* Scores the slim plans of points whose plans do not fit: these take no less time than those. */
static void
run_slim (Work *work)
{
  work->is_slim = TRUE;
  for (guint i = 0; i < work->too_big->len; i++)
    {
      Candidate slim = g_array_index (work->too_big, Candidate, i);
      slim.memory_bytes = 0;
      put_again (work, &slim);
    }
  run_threads (work, score_thread);
}

/* Drops found plans that are neither plain nor among the best, because threads in another order
 * might not have scored them. */
static void
drop_found_by_chance (const Work *work, guint n_plain)
{
  GArray *found = work->result->found;
  for (guint i = found->len; i-- > n_plain;)
    if (g_array_index (found, PlanFound, i).score.time_ns > work->mark.worst_ns)
      g_array_remove_index_fast (found, i);
}

void
plan_search_run (const PlanSearch *self, PlanSearchResult *out_result)
{
  const guint64 plain = plan_space_n_plain_blocks (self->space);
  *out_result = (PlanSearchResult){ .total = plan_space_size (self->space) };
  out_result->found = g_array_new (FALSE, FALSE, sizeof (PlanFound));
  g_autoptr (GArray) too_big = g_array_new (FALSE, FALSE, sizeof (Candidate));
  Work work = { .search = self,
                .result = out_result,
                .lean = lean_of (self->space),
                .blocks = g_sequence_new (NULL),
                .too_big = too_big,
                .mark = { G_MAXINT64, G_MAXINT64, TRUE } };
  g_mutex_init (&work.lock);
  g_cond_init (&work.is_done);
  run_blocks (&work, 0, plain);
  /* Points that are not plain, and slim plans, are answers only if they are among the K best. */
  const guint n_plain = out_result->found->len;
  work.mark.is_plain = FALSE;
  if (!work.is_stopped)
    run_blocks (&work, plain, out_result->total / plan_space_block_size (self->space));
  if (!work.is_stopped)
    run_slim (&work);
  g_sequence_foreach (work.blocks, free_waiting, NULL);
  g_sequence_free (work.blocks);
  g_cond_clear (&work.is_done);
  g_mutex_clear (&work.lock);
  drop_found_by_chance (&work, n_plain);
  g_array_sort (out_result->found, compare_found);
  out_result->worst_ns = work.mark.worst_ns;
  out_result->front_ns
      = work.mark.best_ns == G_MAXINT64
            ? 0
            : (gint64)MIN ((double)work.mark.best_ns * MAX (self->front, 1), 0x1p62);
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
