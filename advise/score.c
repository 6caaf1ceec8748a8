/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/score.h"

#include "advise/floor-work.h"
#include "advise/floor.h"
#include "advise/predict.h"
#include "advise/stages.h"
#include "advise/uncertainty.h"
#include "planner/lower/lower.h"
#include "planner/search/bound.h"
#include "sim/fast/measure.h"

/* What is known of a plan so far. */
typedef struct
{
  gint64 time_ns;       /* below 0: unknown */
  guint64 memory_bytes; /* lower bound */
  guint64 resting;      /* the part that stays between steps; known once there was a schedule */
  gboolean is_whole;    /* time and memory are exact */
  /* Of a pipeline whose time is known: */
  guint n_steps;       /* simulated */
  const guint64 *live; /* the peak of live bytes of each stage; belongs to the scorer */
} Known;

/* Device bytes, without communicators, of plans that differ only in costs and groups. */
typedef struct
{
  guint64 bytes; /* lower bound */
  gboolean is_whole;
} Held;

/* A schedule that several plans share. */
typedef struct
{
  Plan key;
  PlanSchedule *schedule;
} Shared;

#define RECENT 8 /* number of schedules kept; plans that share one follow each other closely */

struct _AdviseScorer
{
  const AdviseInput *input;
  double p_fits;
  GMutex lock;
  GHashTable *scores; /* distilled Plan -> Known */
  GHashTable *helds;  /* distilled Plan -> Held */
  GPtrArray *lives;   /* see Known */
  AdviseFloors *floors;
  Shared *recent[RECENT];
  guint n_shared; /* number of schedules shared so far */
  guint64 n_simulated;
};

AdviseScorer *
advise_scorer_new (const AdviseInput *input, double p_fits)
{
  AdviseScorer *self = g_new0 (AdviseScorer, 1);
  self->input = input;
  self->p_fits = p_fits;
  g_mutex_init (&self->lock);
  self->scores
      = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  self->helds = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  self->lives = g_ptr_array_new_with_free_func (g_free);
  self->floors = advise_floors_new (input);
  return self;
}

static void
clear_shared (gpointer shared)
{
  plan_schedule_free (((Shared *)shared)->schedule);
}

static void
release (Shared *shared)
{
  if (shared)
    g_atomic_rc_box_release_full (shared, clear_shared);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Shared, release)

void
advise_scorer_free (AdviseScorer *self)
{
  if (!self)
    return;
  for (guint i = 0; i < RECENT; i++)
    release (self->recent[i]);
  g_ptr_array_unref (self->lives);
  g_hash_table_unref (self->helds);
  g_hash_table_unref (self->scores);
  advise_floors_free (self->floors);
  g_mutex_clear (&self->lock);
  g_free (self);
}

guint64
advise_scorer_n_simulated (const AdviseScorer *self)
{
  return self->n_simulated;
}

static Known
find_known (AdviseScorer *self, const Plan *key)
{
  g_mutex_lock (&self->lock);
  const Known *found = g_hash_table_lookup (self->scores, key);
  const Known known = found ? *found : (Known){ .time_ns = -1 };
  g_mutex_unlock (&self->lock);
  return known;
}

static void
keep_known (AdviseScorer *self, const Plan *key, const Known *known, gboolean is_simulated)
{
  g_mutex_lock (&self->lock);
  self->n_simulated += is_simulated;
  g_hash_table_replace (self->scores, g_memdup2 (key, sizeof *key),
                        g_memdup2 (known, sizeof *known));
  g_mutex_unlock (&self->lock);
}

static Held
find_held (AdviseScorer *self, const Plan *key)
{
  g_mutex_lock (&self->lock);
  const Held *found = g_hash_table_lookup (self->helds, key);
  const Held held = found ? *found : (Held){ 0 };
  g_mutex_unlock (&self->lock);
  return held;
}

static void
keep_held (AdviseScorer *self, const Plan *key, guint64 bytes, gboolean is_whole)
{
  g_mutex_lock (&self->lock);
  Held *held = g_hash_table_lookup (self->helds, key);
  if (!held)
    g_hash_table_insert (self->helds, g_memdup2 (key, sizeof *key), held = g_new0 (Held, 1));
  held->bytes = MAX (held->bytes, bytes);
  held->is_whole = held->is_whole || is_whole;
  g_mutex_unlock (&self->lock);
}

static Shared *
find_recent (AdviseScorer *self, const Plan *key)
{
  Shared *shared = NULL;
  g_mutex_lock (&self->lock);
  for (guint i = 0; i < RECENT && !shared; i++)
    if (self->recent[i] && plan_search_key_equal (&self->recent[i]->key, key))
      shared = g_atomic_rc_box_acquire (self->recent[i]);
  g_mutex_unlock (&self->lock);
  return shared;
}

/* The schedule of a plan, which may have been made for another plan. */
static Shared *
lower (AdviseScorer *self, const PlanCase *of, const Plan *key)
{
  Plan schedule_key = *key;
  plan_lower_distil_schedule (&schedule_key);
  Shared *shared = find_recent (self, &schedule_key);
  if (shared)
    return shared;
  PlanSchedule *schedule = plan_lower (of, 0, NULL);
  if (!schedule)
    return NULL;
  shared = g_atomic_rc_box_new0 (Shared);
  *shared = (Shared){ schedule_key, schedule };
  g_mutex_lock (&self->lock);
  Shared **place = &self->recent[self->n_shared++ % RECENT];
  Shared *before = *place;
  *place = g_atomic_rc_box_acquire (shared);
  g_mutex_unlock (&self->lock);
  release (before);
  return shared;
}

/* A plan being scored. */
typedef struct
{
  const PlanCase *of;
  PlanInquiry *inquiry;
  gint64 enough_ns;     /* no score is needed for plans that take longer, */
  guint64 enough_bytes; /* or need more */
  Plan key, held_key;
  guint64 communicator_bytes;
  AdviseMemoryError error;
  Known known;
} Scoring;

/* A lower bound of the memory that the plan needs, from what has been computed so far. Memory that
 * stays between steps is predicted best; until a schedule says how much that is, all counts as
 * staying, which gives the least. */
static guint64
needed_bytes (const AdviseScorer *self, const Scoring *s)
{
  const guint64 resting = s->known.resting > 0 ? s->known.resting : s->known.memory_bytes;
  return advise_needed_bytes (&s->error, self->p_fits, s->known.memory_bytes, resting);
}

/* Whether the plan still matters: to the inquiry, or without one, whether it takes and needs no
 * more than is enough. */
static gboolean
matters (const AdviseScorer *self, const Scoring *s)
{
  const guint64 needed = needed_bytes (self, s);
  return needed <= s->enough_bytes && s->known.time_ns <= s->enough_ns
         && (!s->inquiry
             || (plan_inquiry_may_fit (s->inquiry, needed)
                 && (s->known.time_ns < 0 || plan_inquiry_matters (s->inquiry, s->known.time_ns))));
}

static void
learn_held (AdviseScorer *self, Scoring *s)
{
  const Held held = find_held (self, &s->held_key);
  if (held.bytes > 0)
    s->known.memory_bytes = MAX (s->known.memory_bytes, held.bytes + s->communicator_bytes);
  s->known.is_whole = s->known.time_ns >= 0 && (s->known.is_whole || held.is_whole);
}

/* The device memory up to which a plan with that step time, and so many bytes between steps, can
 * still be an answer. */
static guint64
takable_bytes (const AdviseScorer *self, const Scoring *s, guint64 resting)
{
  const guint64 needed
      = s->inquiry ? plan_inquiry_enough_bytes (s->inquiry, s->known.time_ns) : s->enough_bytes;
  return advise_takable_bytes (&s->error, self->p_fits, needed, resting);
}

/* Finds what the allocator holds, as far as it matters. */
static void
run_allocator (AdviseScorer *self, const PlanSchedule *schedule, const SimCost *cost, Scoring *s)
{
  const guint64 enough = takable_bytes (self, s, s->known.resting);
  guint64 bytes;
  gboolean is_settled;
  if (!sim_measure_device_bytes (schedule, cost, s->of->stack, enough, advise_workspace (), &bytes,
                                 &is_settled, NULL))
    return;
  s->known.memory_bytes = bytes;
  s->known.is_whole = bytes <= enough;
  if (is_settled)
    keep_held (self, &s->held_key, bytes - s->communicator_bytes, bytes <= enough);
}

/* Whether the plan still matters if it takes no less time than that. */
static gboolean
may_be_quick (const Scoring *s, gint64 least_ns)
{
  return least_ns <= s->enough_ns
         && (!s->inquiry || plan_inquiry_may_be_quick (s->inquiry, least_ns));
}

/* Finds time and memory, the cheapest first: live bytes, then time, then the allocator. Stops when
 * the plan no longer matters. Returns whether it was simulated. */
static gboolean
find_out (AdviseScorer *self, Scoring *s)
{
  g_autoptr (Shared) shared = lower (self, s->of, &s->key);
  if (!shared)
    return FALSE;
  const guint64 least = sim_measure_least_bytes (shared->schedule, s->of->stack);
  keep_held (self, &s->held_key, least - s->communicator_bytes, FALSE);
  s->known.memory_bytes = MAX (s->known.memory_bytes, least);
  s->known.resting = sim_measure_resting_bytes (shared->schedule, s->of->stack);
  if (!matters (self, s))
    return FALSE;
  g_autoptr (SimCost) cost = advise_cost_of (self->input, s->of, shared->schedule, NULL);
  if (!cost || !may_be_quick (s, advise_floor_serial_ns (shared->schedule, cost)))
    return FALSE;
  s->known.time_ns = sim_measure_step (shared->schedule, cost, advise_workspace ());
  learn_held (self, s);
  if (matters (self, s) && !s->known.is_whole)
    run_allocator (self, shared->schedule, cost, s);
  return TRUE;
}

/* Whether a pipeline can still be an answer, by the peak of live bytes of each stage. The end
 * stages come first, as they are the fullest: the first holds most micro batches, and the last has
 * the loss. */
static gboolean
stages_may_fit (AdviseScorer *self, AdviseStages *stages, Scoring *s, guint64 *out_live)
{
  for (guint i = 0; i < stages->n; i++)
    {
      const guint stage = i == 1 ? stages->n - 1 : i == 0 ? 0 : i - 1;
      const PlanSchedule *schedule = advise_stages_lower (stages, s->of, stage, NULL);
      if (!schedule)
        return FALSE;
      out_live[stage] = sim_measure_least_bytes (schedule, s->of->stack);
      s->known.memory_bytes = MAX (s->known.memory_bytes, out_live[stage]);
      if (!matters (self, s))
        return FALSE;
    }
  return TRUE;
}

/* Finds the step time of a pipeline, and what its memory follows from. FALSE: it can no longer be
 * an answer, and was not simulated. */
static gboolean
find_time_of_stages (AdviseScorer *self, Scoring *s)
{
  g_auto (AdviseStages) stages = { 0 };
  advise_stages_start (&stages, s->of, TRUE);
  guint64 *live = g_new0 (guint64, stages.n);
  g_mutex_lock (&self->lock);
  g_ptr_array_add (self->lives, live);
  g_mutex_unlock (&self->lock);
  if (!stages_may_fit (self, &stages, s, live)
      || !advise_stages_finish (&stages, self->input, s->of, NULL))
    return FALSE;
  s->known.live = live;
  s->known.time_ns = advise_stages_time (&stages, s->of, &s->known.n_steps);
  guint64 resting = 0;
  for (guint i = 0; i < stages.n; i++)
    {
      const guint64 here = sim_measure_resting_bytes (stages.schedules[i], s->of->stack);
      resting = MAX (resting, here);
    }
  s->known.resting = resting;
  return TRUE;
}

/* Finds how much memory the fullest stage needs, as far as it matters. */
static void
find_memory_of_stages (AdviseScorer *self, Scoring *s)
{
  g_auto (AdviseStages) stages = { 0 };
  const guint64 enough = takable_bytes (self, s, s->known.resting);
  advise_stages_start (&stages, s->of, FALSE);
  const guint fullest
      = advise_stages_memory (&stages, self->input, s->of, s->known.live, s->known.n_steps, enough,
                              &s->known.memory_bytes, NULL);
  s->known.is_whole = fullest < stages.n && s->known.memory_bytes <= enough;
  if (s->known.is_whole)
    s->known.resting = sim_measure_resting_bytes (stages.schedules[fullest], s->of->stack);
}

/* Does for a pipeline what find_out does: every stage has to fit, and the step is that of all
 * stages. Memory takes longest to find, and so is left for when no other plan may be faster. */
static gboolean
find_out_stages (AdviseScorer *self, Scoring *s)
{
  const gboolean is_timed = s->known.time_ns >= 0;
  if (!is_timed && !find_time_of_stages (self, s))
    return FALSE;
  if (s->known.time_ns >= 0 && matters (self, s)
      && (is_timed || !s->inquiry || !plan_inquiry_comes_later (s->inquiry, s->known.time_ns)))
    find_memory_of_stages (self, s);
  return !is_timed;
}

static gboolean
score (AdviseScorer *self, const PlanCase *of, PlanInquiry *inquiry, gint64 enough_ns,
       guint64 enough_bytes, PlanScore *out_score)
{
  Scoring s
      = { .of = of, .inquiry = inquiry, .enough_ns = enough_ns, .enough_bytes = enough_bytes };
  plan_lower_distil (of, &s.key);
  s.held_key = s.key;
  plan_lower_distil_schedule (&s.held_key);
  s.held_key.value[PLAN_AG_GROUP] = PLAN_AG_GROUP_OFF;
  s.error = advise_memory_error (self->input->adjustments, of->cluster, of->stack);
  s.communicator_bytes = plan_bound_communicator_bytes (of);
  s.known = find_known (self, &s.key);
  const guint64 least = plan_bound_memory (of); /* not inside MAX, which would compute it twice */
  s.known.memory_bytes = MAX (s.known.memory_bytes, least);
  const gboolean has_stages = of->plan.value[PLAN_PP] > 1;
  if (!has_stages)
    learn_held (self, &s);
  if (!matters (self, &s))
    return FALSE;
  if (!s.known.is_whole)
    {
      const gboolean is_simulated = has_stages ? find_out_stages (self, &s) : find_out (self, &s);
      keep_known (self, &s.key, &s.known, is_simulated);
    }
  *out_score = (PlanScore){ .time_ns = s.known.time_ns,
                            .memory_bytes = needed_bytes (self, &s),
                            .device_bytes = s.known.memory_bytes };
  return s.known.is_whole;
}

gboolean
advise_scorer_score (const PlanCase *of, PlanInquiry *inquiry, gpointer self, PlanScore *out_score)
{
  return score (self, of, inquiry, G_MAXINT64, G_MAXUINT64, out_score);
}

gboolean
advise_scorer_score_within (AdviseScorer *self, const PlanCase *of, gint64 enough_ns,
                            guint64 enough_bytes, PlanScore *out_score)
{
  return score (self, of, NULL, enough_ns, enough_bytes, out_score)
         && out_score->time_ns <= enough_ns && out_score->memory_bytes <= enough_bytes;
}

gint64
advise_scorer_floor (const Plan *resolved, gint64 enough_ns, gpointer data)
{
  AdviseScorer *self = data;
  return advise_floors_ns (self->floors, resolved, enough_ns);
}

gint64
advise_scorer_plan_floor (const Plan *resolved, gint64 enough_ns, gpointer data)
{
  AdviseScorer *self = data;
  return advise_floors_beside_ns (self->floors, resolved);
}
