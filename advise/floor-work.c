/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/floor-work.h"

#include "planner/schedule/echo.h"

AdviseFloorWork
advise_floor_work_add (const AdviseFloorWork *a, const AdviseFloorWork *b, gint64 times)
{
  AdviseFloorWork sum = *a;
  for (guint i = 0; i < ADVISE_FLOOR_N; i++)
    sum.of[i] += times * b->of[i];
  sim_slowdown_join (&sum.chain, &b->chain, times);
  sim_slowdown_join (&sum.gather, &b->gather, times);
  sim_slowdown_join (&sum.reduce, &b->reduce, times);
  return sum;
}

static gboolean
adds_gradients (const PlanSchedule *schedule, const PlanOp *op)
{
  return op->kind == PLAN_OP_ACCUMULATE
         && plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_ACCUMULATE_out].array)
                    ->category
                == PLAN_CATEGORY_MAIN_GRADS;
}

/* Whether an op copies gathered weights to where kernels read them, or gradients into a bucket. */
static gboolean
copies_exchanged (const PlanSchedule *schedule, const PlanOp *op)
{
  if (op->kind != PLAN_OP_CAST || op->stream != PLAN_STREAM_COMPUTE)
    return FALSE;
  const PlanCategory category
      = plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_CAST_out].array)->category;
  return category == PLAN_CATEGORY_GATHERED || category == PLAN_CATEGORY_GRAD_BUCKETS;
}

/* Whether an op is a collective that begins when all compute issued so far is over, and for which
 * compute then waits. */
static gboolean
is_awaited (const PlanSchedule *schedule, guint node)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  if (op->stream != PLAN_STREAM_TENSOR || op->n_waits == 0
      || node + 1 == plan_schedule_n_nodes (schedule))
    return FALSE;
  const PlanOp *next = plan_schedule_node (schedule, node + 1);
  return next->kind == PLAN_OP_WAIT && next->stream == PLAN_STREAM_COMPUTE && next->n_waits > 0
         && next->waits[0].array == op->record.array;
}

static SimSlowdown *
slowdown_of (const PlanOp *op, gboolean awaited, AdviseFloorWork *work)
{
  if (op->stream == PLAN_STREAM_COMPUTE || awaited)
    return &work->chain;
  return op->stream == PLAN_STREAM_GATHER   ? &work->gather
         : op->stream == PLAN_STREAM_REDUCE ? &work->reduce
                                            : NULL;
}

/* The quickest trade of a step. It is kept by itself, since the number of trades per micro batch is
 * not the same in short steps and long ones. */
static gint64
quickest_trade_ns (const PlanSchedule *schedule, const SimCost *cost)
{
  gint64 least = 0;
  for (guint node = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);
       node < plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN); node++)
    if (plan_schedule_node (schedule, node)->kind == PLAN_OP_TRADE)
      least = MIN (least > 0 ? least : G_MAXINT64, sim_cost_ns (cost, node));
  return least;
}

static void
note_op (const PlanSchedule *schedule, const SimCost *cost, guint node, gint64 times,
         AdviseFloorWork *work)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  if (op->kind == PLAN_OP_TRADE)
    return;
  const gint64 ns = times * sim_cost_ns (cost, node);
  const gint64 launch_ns = times * sim_cost_launch_ns (cost, node);
  const gboolean awaited = is_awaited (schedule, node);
  work->of[ADVISE_FLOOR_AWAITED] += awaited ? ns : 0;
  work->of[ADVISE_FLOOR_COPYING] += copies_exchanged (schedule, op) ? ns : 0;
  work->of[ADVISE_FLOOR_STREAMS + op->stream] += ns;
  work->of[ADVISE_FLOOR_HOST] += launch_ns;
  if (op->group >= 0 && (op->stream == PLAN_STREAM_GATHER || op->stream == PLAN_STREAM_REDUCE))
    work->of[ADVISE_FLOOR_GROUPS + op->group] += ns;
  if (!adds_gradients (schedule, op))
    {
      SimSlowdown *slowdown = slowdown_of (op, awaited, work);
      if (slowdown && ns > 0)
        sim_slowdown_add (slowdown, sim_cost_load (cost, node), times, ns);
      return;
    }
  work->of[ADVISE_FLOOR_ADDING] += ns;
  work->of[ADVISE_FLOOR_ADDING_LAUNCH] += launch_ns;
  work->of[ADVISE_FLOOR_N_ADDING] += times;
}

/* What an op adds to serial_ns: its time on the chain, which is the compute stream with all that
 * the stream waits for at once, and the host's time to issue it. FALSE: it may be left out.
 * Accumulating gradients is left out, as some plans do less of it than the relaxed one. */
static gboolean
serial_cost (const PlanSchedule *schedule, const SimCost *cost, guint node, gint64 *out_ns,
             gint64 *out_launch_ns)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  if (op->kind == PLAN_OP_TRADE || adds_gradients (schedule, op))
    return FALSE;
  const gboolean is_in_chain = op->stream == PLAN_STREAM_COMPUTE || is_awaited (schedule, node);
  *out_ns = is_in_chain ? sim_cost_ns (cost, node) : 0;
  *out_launch_ns = sim_cost_launch_ns (cost, node);
  return TRUE;
}

/* How often an echo's nodes are gone through. */
typedef struct
{
  guint begin, end;
  gint64 times;
} Again;

static void
count_echo (GArray *again, const PlanEcho *echo, gint64 times)
{
  for (guint i = 0; i < again->len; i++)
    {
      Again *known = &g_array_index (again, Again, i);
      if (known->begin != echo->begin || known->end != echo->end)
        continue;
      known->times += times;
      return;
    }
  const Again added = { echo->begin, echo->end, times };
  g_array_append_val (again, added);
}

/* Counts the echoes at a node, from the one with that number on; returns the number of the next
 * one. */
static guint
count_echoes (const PlanSchedule *schedule, guint number, guint node, gint64 times, GArray *again)
{
  const PlanEcho *echo;
  for (; again && (echo = plan_schedule_echo_at (schedule, number, node)); number++)
    count_echo (again, echo, times);
  return number;
}

/* Notes the ops of nodes so many times, with each repeat multiplied out, and counts the echoes
 * among them; `again` is NULL for those of an echo, as there are no echoes within an echo. */
static void
note_times (const PlanSchedule *schedule, const SimCost *cost, const Again *nodes, GArray *again,
            AdviseFloorWork *work)
{
  PlanTimes counting = { 0 };
  guint number = plan_schedule_find_echo (schedule, nodes->begin);
  for (guint node = nodes->begin; node < nodes->end; node++)
    {
      const gint64 around = counting.depth > 0 ? counting.times[counting.depth - 1] : 1;
      number = count_echoes (schedule, number, node, nodes->times * around, again);
      const gint64 inside = plan_times_next (&counting, plan_schedule_node (schedule, node));
      if (inside > 0)
        note_op (schedule, cost, node, nodes->times * inside, work);
    }
  count_echoes (schedule, number, nodes->end, nodes->times, again);
}

/* Notes the ops of nodes [begin, end) and of the echoes among them. */
static void
note_nodes (const PlanSchedule *schedule, const SimCost *cost, guint begin, guint end,
            AdviseFloorWork *work)
{
  g_autoptr (GArray) again = g_array_new (FALSE, FALSE, sizeof (Again));
  const Again all = { begin, end, 1 };
  note_times (schedule, cost, &all, again, work);
  for (guint i = 0; i < again->len; i++)
    note_times (schedule, cost, &g_array_index (again, Again, i), NULL, work);
}

/* Host and chain while nodes are gone through in order, for advise_floor_serial_ns. */
typedef struct
{
  const PlanSchedule *schedule;
  const SimCost *cost;
  gint64 host_ns, chain_ns; /* host and chain time since the host last waited */
  gint64 busy_ns;           /* total time for which the chain is busy */
  gint64 total_ns;          /* time until the host last waited */
  GArray *known;            /* KnownEcho; NULL within an echo */
} Walk;

/* What an echo's nodes did, of which many follow the same. */
typedef struct
{
  guint begin, end;
  gint64 host_ns, chain_ns; /* before it */
  Walk after;
} KnownEcho;

/* The node of the end of the repeat that begins at `node`, and whether the host waits in it. */
static guint
end_of_repeat (const PlanSchedule *schedule, guint node, gboolean *out_waits)
{
  guint depth = 0;
  *out_waits = FALSE;
  for (;; node++)
    {
      const PlanOpKind kind = plan_schedule_node (schedule, node)->kind;
      depth += kind == PLAN_OP_REPEAT;
      depth -= kind == PLAN_OP_END;
      *out_waits = *out_waits || kind == PLAN_OP_SYNC;
      if (depth == 0)
        return node;
    }
}

/* Whether the host's wait ends only after all compute issued so far: it waits for the event that
 * the op before it recorded on the compute stream, or for an exchange that itself waits for
 * compute. */
static gboolean
is_behind_compute (const PlanSchedule *schedule, guint node)
{
  const PlanOp *op = plan_schedule_node (schedule, node);
  const PlanOp *before = node > 0 ? plan_schedule_node (schedule, node - 1) : op;
  return op->n_waits == 1 && op->waits[0].array == before->record.array
         && ((before->kind == PLAN_OP_WAIT && before->stream == PLAN_STREAM_COMPUTE)
             || (before->kind == PLAN_OP_TRADE && before->n_waits > 0));
}

static void
pass_op (Walk *self, guint node, gint64 times)
{
  gint64 ns, launch_ns;
  if (plan_schedule_node (self->schedule, node)->kind == PLAN_OP_SYNC)
    {
      const gint64 computed = is_behind_compute (self->schedule, node) ? self->chain_ns : 0;
      self->total_ns += times * MAX (self->host_ns, computed);
      self->host_ns = self->chain_ns = 0;
      return;
    }
  if (!serial_cost (self->schedule, self->cost, node, &ns, &launch_ns))
    return;
  self->host_ns += launch_ns;
  self->busy_ns += ns;
  if (ns > 0)
    self->chain_ns = MAX (self->chain_ns, self->host_ns) + ns;
}

static void pass (Walk *self, guint node, guint end, gint64 times);

/* Goes through an echo once, or finds what that did before from the same state of host and chain.
 */
static const KnownEcho *
know_echo (Walk *self, const PlanEcho *echo)
{
  KnownEcho new = { echo->begin,
                    echo->end,
                    self->host_ns,
                    self->chain_ns,
                    { .schedule = self->schedule,
                      .cost = self->cost,
                      .host_ns = self->host_ns,
                      .chain_ns = self->chain_ns } };
  for (guint i = 0; i < self->known->len; i++)
    {
      const KnownEcho *known = &g_array_index (self->known, KnownEcho, i);
      if (known->begin == new.begin && known->end == new.end && known->host_ns == new.host_ns
          && known->chain_ns == new.chain_ns)
        return known;
    }
  pass (&new.after, new.begin, new.end, 1);
  g_array_append_val (self->known, new);
  return &g_array_index (self->known, KnownEcho, self->known->len - 1);
}

/* Adds the echoes at a node, from the one with that number on; returns the number of the next one.
 * There are no echoes within an echo. */
static guint
pass_echoes (Walk *self, guint number, guint node, gint64 times)
{
  const PlanEcho *echo;
  for (; self->known && (echo = plan_schedule_echo_at (self->schedule, number, node)); number++)
    {
      const Walk *after = &know_echo (self, echo)->after;
      self->host_ns = after->host_ns;
      self->chain_ns = after->chain_ns;
      self->busy_ns += after->busy_ns;
      self->total_ns += times * after->total_ns;
    }
  return number;
}

/* Adds the time of nodes [node, end), which happen `times` times. The first iteration of a repeat
 * follows what is before it, each other iteration the one before. Where the host does not wait in a
 * repeat, its further iterations are not followed: each adds for how long it keeps the host, and
 * the chain, busy. */
static void
pass (Walk *self, guint node, guint end, gint64 times)
{
  guint number = plan_schedule_find_echo (self->schedule, node);
  for (; node < end; node++)
    {
      const PlanOp *op = plan_schedule_node (self->schedule, node);
      number = pass_echoes (self, number, node, times);
      if (op->kind != PLAN_OP_REPEAT)
        {
          pass_op (self, node, times);
          continue;
        }
      const gint64 count = op->dims[PLAN_REPEAT_COUNT];
      gboolean waits;
      const guint last = end_of_repeat (self->schedule, node, &waits);
      if (count > 0)
        pass (self, node + 1, last, times);
      if (count > 1 && waits)
        pass (self, node + 1, last, times * (count - 1));
      else if (count > 1)
        {
          Walk one = { .schedule = self->schedule, .cost = self->cost, .known = self->known };
          pass (&one, node + 1, last, 1);
          self->host_ns += (count - 1) * one.host_ns;
          self->chain_ns += (count - 1) * one.busy_ns;
        }
      node = last;
      number = plan_schedule_find_echo (self->schedule, last + 1);
    }
  pass_echoes (self, number, end, times);
}

/* Where the host waits, everything issued later starts later. So the stretches
 * between two waits follow one another, and each takes at least as long as the host needs for its
 * ops, or as compute needs when no op starts before it is issued. */
gint64
advise_floor_serial_ns (const PlanSchedule *schedule, const SimCost *cost)
{
  g_autoptr (GArray) known = g_array_new (FALSE, FALSE, sizeof (KnownEcho));
  Walk walk = { .schedule = schedule, .cost = cost, .known = known };
  pass (&walk, plan_schedule_section_node (schedule, PLAN_SECTION_STEP),
        plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN), 1);
  return walk.total_ns;
}

/* What nodes [begin, end) add to it when they follow themselves. */
static gint64
serial_again_ns (const PlanSchedule *schedule, const SimCost *cost, guint begin, guint end)
{
  g_autoptr (GArray) known = g_array_new (FALSE, FALSE, sizeof (KnownEcho));
  Walk walk = { .schedule = schedule, .cost = cost, .known = known };
  pass (&walk, begin, end, 1);
  const gint64 before_ns = walk.total_ns;
  pass (&walk, begin, end, 1);
  return walk.total_ns - before_ns;
}

/* Divides the work of `n` equal micro batches by their number, rounding down. */
static void
divide (AdviseFloorWork *work, gint64 n)
{
  for (guint i = 0; i < ADVISE_FLOOR_N; i++)
    work->of[i] /= n;
  sim_slowdown_divide (&work->chain, n);
  sim_slowdown_divide (&work->gather, n);
  sim_slowdown_divide (&work->reduce, n);
}

gboolean
advise_floor_work_of_repeat (const PlanSchedule *schedule, const SimCost *cost, gint64 alike,
                             AdviseFloorWork *out_work)
{
  guint begin, end;
  if (!plan_schedule_find_repeat (schedule, "m", &begin, &end))
    return FALSE;
  *out_work = (AdviseFloorWork){ .trade_ns = quickest_trade_ns (schedule, cost) };
  note_nodes (schedule, cost, begin, end, out_work);
  out_work->of[ADVISE_FLOOR_SERIAL] = serial_again_ns (schedule, cost, begin, end);
  divide (out_work, alike);
  return TRUE;
}

AdviseFloorWork
advise_floor_work_of_step (const PlanSchedule *schedule, const SimCost *cost)
{
  AdviseFloorWork work = { .trade_ns = quickest_trade_ns (schedule, cost) };
  note_nodes (schedule, cost, plan_schedule_section_node (schedule, PLAN_SECTION_STEP),
              plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN), &work);
  work.of[ADVISE_FLOOR_SERIAL] = advise_floor_serial_ns (schedule, cost);
  return work;
}
