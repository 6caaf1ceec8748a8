/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/stretch.h"

#include "sim/sharing.h"

#include <string.h>

#define MAX_VISITS 512 /* outcomes remembered of a stretch */
#define ANY 0          /* digest of a visit that may apply whatever spells are beside it */

/* A clock of the engine (events by their number in the stretch), and a time of it from the start.
 */
typedef struct
{
  guint32 clock;
  gboolean decides; /* some op began just then, because of this clock; else the clock held up no op,
                       and `ns` is the latest time at which it holds up none */
  gint64 ns;
} Mark;

typedef struct
{
  guint stream;
  SimLoad load;
  gint64 begin_ns, end_ns;
} Spell;

/* One remembered run; all times are counted from its start. */
typedef struct
{
  GArray *found; /* Mark: clocks that it read before setting them */
  GArray *left;  /* Mark: clocks that it set */
  GArray *beside,
      *behind;     /* Spell: those not yet over as its first op began, and those at its end */
  gint64 first_ns; /* when its first op began */
  Mark host;       /* the host's clock as it began */
  gboolean sets_host;
  gint64 host_ns; /* the host's clock at its end; if the run never sets it, the time added to it */
} Visit;

/* What is known of a clock during a first run. */
typedef struct
{
  gint64 found_ns; /* its time at the beginning */
  gint64 until_ns; /* how late it may be at the beginning without deciding any start */
  gboolean is_set, is_read, decides;
} Watch;

struct _SimStretch
{
  GBytes *ops;
  guint n_events;
  /* guint32: the clocks that, beside the host, decide when its first compute op starts. */
  GArray *leads;
  gint64 lead_launch_ns;  /* time that the host takes to issue its first compute op */
  gboolean is_remembered; /* it has a compute op, and so outcomes are remembered */
  GPtrArray *visits;      /* Visit */
  GArray *digests; /* guint64 per visit: digest of the spells beside it at its start, or ANY */
  guint next_lost; /* index of the visit to replace when there is no room for more */
};

static void
free_visit (gpointer data)
{
  Visit *visit = data;
  g_array_unref (visit->found);
  g_array_unref (visit->left);
  g_array_unref (visit->beside);
  g_array_unref (visit->behind);
  g_free (visit);
}

static const SimStretchOp *
ops_of (const SimStretch *self, gsize *out_n)
{
  const SimStretchOp *ops = g_bytes_get_data (self->ops, out_n);
  *out_n /= sizeof *ops;
  return ops;
}

/* Calls `visit` with every clock that an op waits for, except the host's. */
static void
each_operand (const SimStretchOp *op, void (*visit) (gpointer data, guint32 clock), gpointer data)
{
  visit (data, SIM_CLOCK_STREAMS + op->stream);
  if (op->group >= 0)
    visit (data, SIM_CLOCK_GROUPS + (guint32)op->group);
  for (guint i = 0; i < op->n_waits; i++)
    visit (data, SIM_CLOCK_EVENTS + op->waits[i]);
}

/* Calls `visit` with every clock that an op sets. */
static void
each_result (const SimStretchOp *op, void (*visit) (gpointer data, guint32 clock), gpointer data)
{
  if (op->kind == SIM_ISSUE_SYNC)
    return;
  visit (data, SIM_CLOCK_STREAMS + op->stream);
  if (op->kind == SIM_ISSUE_WORK && op->group >= 0)
    visit (data, SIM_CLOCK_GROUPS + (guint32)op->group);
  if (op->record >= 0)
    visit (data, SIM_CLOCK_EVENTS + (guint32)op->record);
}

typedef struct
{
  gboolean *is_set; /* by clock */
  GArray *leads;
} Leads;

static void
add_lead (gpointer data, guint32 clock)
{
  Leads *self = data;
  if (!self->is_set[clock])
    g_array_append_val (self->leads, clock);
}

static void
note_set (gpointer data, guint32 clock)
{
  gboolean *is_set = data;
  is_set[clock] = TRUE;
}

static void
find_leads (SimStretch *self)
{
  gsize n;
  const SimStretchOp *ops = ops_of (self, &n);
  g_autofree gboolean *is_set = g_new0 (gboolean, SIM_CLOCK_EVENTS + self->n_events);
  Leads leads = { is_set, self->leads };
  for (gsize i = 0; i < n && !self->is_remembered; i++)
    {
      const gboolean is_work = ops[i].kind == SIM_ISSUE_WORK;
      self->lead_launch_ns += is_work ? ops[i].launch_ns : 0;
      if (ops[i].stream == PLAN_STREAM_COMPUTE)
        each_operand (&ops[i], add_lead, &leads);
      self->is_remembered = is_work && ops[i].stream == PLAN_STREAM_COMPUTE;
      each_result (&ops[i], note_set, is_set);
    }
}

SimStretch *
sim_stretch_new (GBytes *ops, guint n_events)
{
  SimStretch *self = g_new0 (SimStretch, 1);
  self->ops = ops;
  self->n_events = n_events;
  self->leads = g_array_new (FALSE, FALSE, sizeof (guint32));
  self->visits = g_ptr_array_new_with_free_func (free_visit);
  self->digests = g_array_new (FALSE, FALSE, sizeof (guint64));
  find_leads (self);
  return self;
}

void
sim_stretch_free (SimStretch *self)
{
  if (!self)
    return;
  g_bytes_unref (self->ops);
  g_array_unref (self->leads);
  g_ptr_array_unref (self->visits);
  g_array_unref (self->digests);
  g_free (self);
}

static SimClock *
clock_of (const SimEngine *engine, const guint32 *events, guint32 clock)
{
  return sim_engine_clock (engine, clock < SIM_CLOCK_EVENTS
                                       ? clock
                                       : SIM_CLOCK_EVENTS + events[clock - SIM_CLOCK_EVENTS]);
}

/* The time from which a stretch counts: when its first compute op begins, leaving out what that
 * waits for within the stretch. */
static gint64
start_of (const SimStretch *self, const SimEngine *engine, const guint32 *events)
{
  gint64 start = sim_engine_clock (engine, SIM_CLOCK_HOST)->at + self->lead_launch_ns;
  for (guint i = 0; i < self->leads->len; i++)
    start = MAX (start, clock_of (engine, events, g_array_index (self->leads, guint32, i))->at);
  return start;
}

static SimClock *
edges_of (const SimEngine *engine, guint stream, guint spell)
{
  return sim_engine_clock (engine, SIM_CLOCK_SPELLS + (stream * SIM_SPELLS + spell) * 2);
}

typedef struct
{
  PlanStream stream;
  guint32 clock;
} Waiting;

/* The first run of a stretch from some state. */
typedef struct
{
  SimEngine *engine;
  const guint32 *events;
  Watch *watches;  /* by clock */
  GArray *waiting; /* Waiting: clocks that a stream waits for, while no op has begun on it since */
  Watch host;      /* the host's clock as the run began */
  gint64 launched_ns; /* time added to the host's clock since then */
  gint64 first_ns;    /* when its first op began */
  gint64 ready_ns;    /* when the op at hand began */
  PlanStream stream;  /* stream of the op at hand */
} Run;

/* Notes that an op which waited for this clock, possibly among others, began at `ready_ns`. */
static void
judge (Watch *watch, gint64 found_ns, gint64 ready_ns)
{
  watch->decides = watch->decides || found_ns == ready_ns;
  watch->until_ns = MIN (watch->until_ns, ready_ns);
}

/* Notes a clock's time before the op at hand sets it. */
static void
look_at (gpointer data, guint32 clock)
{
  Run *self = data;
  Watch *watch = &self->watches[clock];
  if (watch->is_set || watch->is_read)
    return;
  watch->is_read = TRUE;
  watch->until_ns = G_MAXINT64;
  watch->found_ns = clock_of (self->engine, self->events, clock)->at;
}

static void
judge_operand (gpointer data, guint32 clock)
{
  Run *self = data;
  Watch *watch = &self->watches[clock];
  if (!watch->is_set)
    judge (watch, watch->found_ns, self->ready_ns);
}

/* Defers judging a clock. A stream that only waits has begun nothing; whether the clock decides is
 * known when an op begins. */
static void
put_off (gpointer data, guint32 clock)
{
  Run *self = data;
  const Waiting waiting = { self->stream, clock };
  if (!self->watches[clock].is_set)
    g_array_append_val (self->waiting, waiting);
}

static void
judge_waiting (Run *self, PlanStream stream, gint64 ready_ns)
{
  for (guint i = 0; i < self->waiting->len; i++)
    {
      const Waiting *waiting = &g_array_index (self->waiting, Waiting, i);
      if (waiting->stream == stream)
        judge (&self->watches[waiting->clock], self->watches[waiting->clock].found_ns, ready_ns);
    }
}

static void
forget_waiting (Run *self, PlanStream stream)
{
  for (guint i = self->waiting->len; i-- > 0;)
    if (g_array_index (self->waiting, Waiting, i).stream == stream)
      g_array_remove_index_fast (self->waiting, i);
}

static void
judge_host (Run *self, const SimStretchOp *op)
{
  const gint64 rest_ns = self->ready_ns - self->launched_ns;
  if (op->kind != SIM_ISSUE_HOLD && !self->host.is_set)
    judge (&self->host, self->host.found_ns, rest_ns);
  self->host.is_set = self->host.is_set || op->kind == SIM_ISSUE_SYNC;
}

static void
set_clock (gpointer data, guint32 clock)
{
  ((Run *)data)->watches[clock].is_set = TRUE;
}

static SimIssue
issue_of (const guint32 *events, const SimStretchOp *op)
{
  SimIssue issue = { .kind = (SimIssueKind)op->kind,
                     .stream = (PlanStream)op->stream,
                     .group = op->group,
                     .n_waits = op->n_waits,
                     .wait_level = { -1, -1, -1, -1 },
                     .record_level = -1,
                     .record = op->record < 0 ? -1 : (gint64)events[op->record],
                     .ns = op->ns,
                     .load = op->load,
                     .launch_ns = op->launch_ns };
  for (guint i = 0; i < op->n_waits; i++)
    issue.waits[i] = events[op->waits[i]];
  return issue;
}

static void
run_op (Run *self, const SimStretchOp *op)
{
  const SimIssue issue = issue_of (self->events, op);
  SimClock start;
  each_operand (op, look_at, self);
  sim_engine_issue (self->engine, &issue, &start);
  self->ready_ns = start.at;
  self->stream = issue.stream;
  if (op->kind == SIM_ISSUE_WORK)
    {
      self->launched_ns += op->launch_ns;
      self->first_ns = MIN (self->first_ns, start.at);
    }
  judge_host (self, op);
  if (op->kind == SIM_ISSUE_HOLD && op->record < 0)
    each_operand (op, put_off, self);
  else
    {
      each_operand (op, judge_operand, self);
      judge_waiting (self, issue.stream, start.at);
    }
  if (op->kind == SIM_ISSUE_WORK)
    forget_waiting (self, issue.stream);
  each_result (op, set_clock, self);
}

/* The spells that are not yet over at a time. */
static GArray *
spells_after (const SimEngine *engine, gint64 ns)
{
  GArray *spells = g_array_new (FALSE, FALSE, sizeof (Spell));
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    for (guint i = 0; i < engine->occupancy.n[s]; i++)
      {
        const SimClock *edges = edges_of (engine, s, i);
        const Spell spell = { s, engine->occupancy.load[s][i], edges[0].at, edges[1].at };
        if (spell.end_ns > ns)
          g_array_append_val (spells, spell);
      }
  return spells;
}

static void
count_from (GArray *spells, gint64 start_ns)
{
  for (guint i = 0; i < spells->len; i++)
    {
      g_array_index (spells, Spell, i).begin_ns -= start_ns;
      g_array_index (spells, Spell, i).end_ns -= start_ns;
    }
}

static void
drop_over (GArray *spells, gint64 ns)
{
  guint kept = 0;
  for (guint i = 0; i < spells->len; i++)
    if (g_array_index (spells, Spell, i).end_ns > ns)
      g_array_index (spells, Spell, kept++) = g_array_index (spells, Spell, i);
  g_array_set_size (spells, kept);
}

static Mark
mark_found (guint32 clock, const Watch *watch, gint64 start_ns)
{
  return (Mark){ clock, watch->decides,
                 (watch->decides ? watch->found_ns : watch->until_ns) - start_ns };
}

static Visit *
visit_of (const SimStretch *self, const Run *run, GArray *beside, gint64 start_ns)
{
  Visit *visit = g_new0 (Visit, 1);
  const gint64 host_ns = sim_engine_clock (run->engine, SIM_CLOCK_HOST)->at;
  visit->found = g_array_new (FALSE, FALSE, sizeof (Mark));
  visit->left = g_array_new (FALSE, FALSE, sizeof (Mark));
  for (guint32 clock = 0; clock < SIM_CLOCK_EVENTS + self->n_events; clock++)
    {
      const Watch *watch = &run->watches[clock];
      const Mark found = mark_found (clock, watch, start_ns);
      if (watch->is_read)
        g_array_append_val (visit->found, found);
      if (watch->is_set)
        {
          const gint64 at = clock_of (run->engine, run->events, clock)->at;
          const Mark left = { clock, TRUE, at - start_ns };
          g_array_append_val (visit->left, left);
        }
    }
  drop_over (beside, run->first_ns);
  visit->beside = beside;
  visit->behind = spells_after (run->engine, G_MININT64);
  count_from (visit->beside, start_ns);
  count_from (visit->behind, start_ns);
  visit->first_ns = run->first_ns - start_ns;
  visit->host = mark_found (SIM_CLOCK_HOST, &run->host, start_ns);
  visit->sets_host = run->host.is_set;
  visit->host_ns = run->host.is_set ? host_ns - start_ns : run->launched_ns;
  return visit;
}

static guint64
mixed (guint64 digest, guint64 number)
{
  return (digest ^ number) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15);
}

/* A digest of the spells that are not yet over at the start. */
static guint64
digest_of (const SimEngine *engine, gint64 start_ns)
{
  guint64 digest = 1;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    for (guint i = 0; i < engine->occupancy.n[s]; i++)
      {
        const SimClock *edges = edges_of (engine, s, i);
        if (edges[1].at <= start_ns)
          continue;
        digest = mixed (digest, (guint64)(edges[0].at - start_ns));
        digest = mixed (digest, (guint64)(edges[1].at - start_ns)) + s;
      }
  return digest == ANY ? 1 : digest;
}

static void
remember (SimStretch *self, Visit *visit, guint64 digest)
{
  if (visit->first_ns != 0)
    digest = ANY;
  if (self->visits->len < MAX_VISITS)
    {
      g_ptr_array_add (self->visits, visit);
      g_array_append_val (self->digests, digest);
      return;
    }
  free_visit (self->visits->pdata[self->next_lost]);
  self->visits->pdata[self->next_lost] = visit;
  g_array_index (self->digests, guint64, self->next_lost) = digest;
  self->next_lost = (self->next_lost + 1) % MAX_VISITS;
}

static void
run_first (SimStretch *self, SimEngine *engine, const guint32 *events, gint64 start_ns,
           guint64 digest)
{
  gsize n;
  const SimStretchOp *ops = ops_of (self, &n);
  g_autofree Watch *watches = g_new0 (Watch, SIM_CLOCK_EVENTS + self->n_events);
  g_autoptr (GArray) waiting = g_array_new (FALSE, FALSE, sizeof (Waiting));
  GArray *beside = spells_after (engine, G_MININT64);
  Run run = { .engine = engine,
              .events = events,
              .watches = watches,
              .waiting = waiting,
              .host = { .found_ns = sim_engine_clock (engine, SIM_CLOCK_HOST)->at,
                        .until_ns = G_MAXINT64 },
              .first_ns = G_MAXINT64 };
  for (gsize i = 0; i < n; i++)
    run_op (&run, &ops[i]);
  for (PlanStream s = 0; s < PLAN_N_STREAMS; s++)
    judge_waiting (&run, s, sim_engine_clock (engine, SIM_CLOCK_STREAMS + s)->at);
  remember (self, visit_of (self, &run, beside, start_ns), digest);
}

static gboolean
is_as_marked (const Mark *mark, gint64 ns)
{
  return mark->decides ? ns == mark->ns : ns <= mark->ns;
}

static gboolean
has_spells (const Visit *visit, const SimEngine *engine, gint64 start_ns)
{
  guint k = 0;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    for (guint i = 0; i < engine->occupancy.n[s]; i++)
      {
        const SimClock *edges = edges_of (engine, s, i);
        if (edges[1].at - start_ns <= visit->first_ns)
          continue;
        if (k == visit->beside->len)
          return FALSE;
        const Spell *spell = &g_array_index (visit->beside, Spell, k++);
        if (spell->stream != s || spell->begin_ns != edges[0].at - start_ns
            || spell->end_ns != edges[1].at - start_ns
            || memcmp (&spell->load, &engine->occupancy.load[s][i], sizeof spell->load) != 0)
          return FALSE;
      }
  return k == visit->beside->len;
}

static gboolean
begins_like (const Visit *visit, const SimEngine *engine, const guint32 *events, gint64 start_ns)
{
  if (!is_as_marked (&visit->host, sim_engine_clock (engine, SIM_CLOCK_HOST)->at - start_ns))
    return FALSE;
  for (guint i = 0; i < visit->found->len; i++)
    {
      const Mark *mark = &g_array_index (visit->found, Mark, i);
      if (!is_as_marked (mark, clock_of (engine, events, mark->clock)->at - start_ns))
        return FALSE;
    }
  return has_spells (visit, engine, start_ns);
}

static void
set_spells (SimEngine *engine, const GArray *spells, gint64 start_ns)
{
  SimOccupancy *o = &engine->occupancy;
  memset (sim_engine_clock (engine, SIM_CLOCK_SPELLS), 0,
          (SIM_CLOCK_EVENTS - SIM_CLOCK_SPELLS) * sizeof (SimClock));
  *o = (SimOccupancy){ 0 };
  engine->occupied = 0;
  engine->used = 0;
  for (guint i = 0; i < spells->len; i++)
    {
      const Spell *spell = &g_array_index (spells, Spell, i);
      const SimClock begin = { .at = spell->begin_ns + start_ns };
      const SimClock end = { .at = spell->end_ns + start_ns };
      sim_sharing_add (engine, (PlanStream)spell->stream, &spell->load, &begin, &end);
    }
}

static void
apply_visit (const Visit *visit, SimEngine *engine, const guint32 *events, gint64 start_ns)
{
  gint64 *host_ns = &sim_engine_clock (engine, SIM_CLOCK_HOST)->at;
  *host_ns = visit->host_ns + (visit->sets_host ? start_ns : *host_ns);
  for (guint i = 0; i < visit->left->len; i++)
    {
      const Mark *mark = &g_array_index (visit->left, Mark, i);
      clock_of (engine, events, mark->clock)->at = mark->ns + start_ns;
    }
  set_spells (engine, visit->behind, start_ns);
}

/* A visit that began in the state in which the stretch begins now; NULL: there is none. */
static const Visit *
find_visit (const SimStretch *self, const SimEngine *engine, const guint32 *events, gint64 start_ns,
            guint64 digest)
{
  const guint64 *digests = (const guint64 *)(gconstpointer)self->digests->data;
  for (guint i = 0; i < self->visits->len; i++)
    if ((digests[i] == digest || digests[i] == ANY)
        && begins_like (self->visits->pdata[i], engine, events, start_ns))
      return self->visits->pdata[i];
  return NULL;
}

static void
run_plainly (const SimStretch *self, SimEngine *engine, const guint32 *events)
{
  gsize n;
  const SimStretchOp *ops = ops_of (self, &n);
  for (gsize i = 0; i < n; i++)
    {
      const SimIssue issue = issue_of (events, &ops[i]);
      SimClock start;
      sim_engine_issue (engine, &issue, &start);
    }
}

guint
sim_stretch_run (SimStretch *self, SimEngine *engine, const guint32 *events)
{
  if (!self->is_remembered)
    {
      run_plainly (self, engine, events);
      return sim_stretch_n_ops (self);
    }
  const gint64 start_ns = start_of (self, engine, events);
  const guint64 digest = digest_of (engine, start_ns);
  const Visit *visit = find_visit (self, engine, events, start_ns, digest);
  if (visit)
    apply_visit (visit, engine, events, start_ns);
  else
    run_first (self, engine, events, start_ns, digest);
  return visit ? 0 : sim_stretch_n_ops (self);
}

guint
sim_stretch_n_ops (const SimStretch *self)
{
  gsize n;
  ops_of (self, &n);
  return (guint)n;
}

G_STATIC_ASSERT (sizeof (SimStretchOp) % sizeof (guint64) == 0);

/* Hashes in lanes, which do not wait for one another. */
#define LANES 4

guint
sim_stretch_hash (gconstpointer data)
{
  gsize size;
  const guint64 *words = g_bytes_get_data ((GBytes *)data, &size);
  const gsize n = size / sizeof *words;
  guint64 lanes[LANES] = { size };
  for (gsize i = 0; i + LANES <= n; i += LANES)
    for (gsize lane = 0; lane < LANES; lane++)
      lanes[lane] = mixed (lanes[lane], words[i + lane]);
  for (gsize i = n / LANES * LANES; i < n; i++)
    lanes[0] = mixed (lanes[0], words[i]);
  for (gsize lane = 1; lane < LANES; lane++)
    lanes[0] = mixed (lanes[0], lanes[lane]);
  return (guint)(lanes[0] >> 32);
}
