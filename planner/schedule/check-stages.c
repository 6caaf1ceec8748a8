/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/check-stages.h"

#include "planner/base/error.h"

#include <string.h>

typedef struct
{
  const PlanSchedule *schedule;
  PlanCursor cursor;
  const PlanOp *at; /* the op at which it meets other stages; NULL: its step is over */
} Stage;

typedef struct
{
  Stage *stages;
  guint n;
} Check;

static const PlanGroup *
group_at (const Stage *self)
{
  return plan_schedule_group (self->schedule, (guint)self->at->group);
}

/* Returns the first rank of the group that contains a rank, and gives that rank's index in the
 * group. */
static guint
first_of (const PlanGroup *group, guint rank, guint *out_member)
{
  *out_member = rank / group->stride % group->size;
  return rank - *out_member * group->stride;
}

static gboolean
has_rank (const PlanGroup *group, guint of, guint rank)
{
  guint member, unused;
  const guint first = first_of (group, of, &member);
  return first_of (group, rank, &unused) == first && rank < first + group->size * group->stride;
}

/* The index of the stage that `rank` runs; n: no stage is run by it. */
static guint
find_stage (const Check *self, guint rank)
{
  guint i = 0;
  while (i < self->n && plan_schedule_rank (self->stages[i].schedule) != rank)
    i++;
  return i;
}

static guint
peer_of (const Check *self, const Stage *stage)
{
  guint member;
  const PlanGroup *group = group_at (stage);
  const guint first = first_of (group, plan_schedule_rank (stage->schedule), &member);
  return find_stage (self, first + (guint)stage->at->dims[PLAN_DIM_TRADE_peer] * group->stride);
}

static gboolean
is_shared (const Check *self, const Stage *stage)
{
  const PlanGroup *group;
  if (stage->at->group < 0)
    return FALSE;
  if (stage->at->kind == PLAN_OP_TRADE)
    return TRUE;
  group = group_at (stage);
  for (guint i = 0; i < self->n; i++)
    if (&self->stages[i] != stage
        && has_rank (group, plan_schedule_rank (stage->schedule),
                     plan_schedule_rank (self->stages[i].schedule)))
      return TRUE;
  return FALSE;
}

static void
go_on (const Check *self, Stage *stage)
{
  do
    stage->at = plan_cursor_next (&stage->cursor);
  while (stage->at && !is_shared (self, stage));
}

static gboolean
fail (const Check *self, guint a, guint b, const char *problem, GError **error)
{
  const PlanOp *x = self->stages[a].at, *y = b < self->n ? self->stages[b].at : NULL;
  g_autofree char *other
      = b == self->n ? g_strdup ("no stage of the pipeline")
        : y          ? g_strdup_printf ("stage %u, at op %u (%s)", b, self->stages[b].cursor.node,
                                        plan_op_name (y->kind))
                     : g_strdup_printf ("stage %u, whose step is over", b);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "schedules: stage %u, op %u (%s), %s %s", a,
               self->stages[a].cursor.node, plan_op_name (x->kind), problem, other);
  return FALSE;
}

static gboolean
sends (const PlanOp *op)
{
  return op->refs[PLAN_REF_TRADE_in].array >= 0;
}

static gboolean
takes (const PlanOp *op)
{
  return op->refs[PLAN_REF_TRADE_out].array >= 0;
}

/* The number format of what an op trades. */
static PlanDtype
format_of (const Stage *self)
{
  const PlanRef *ref = &self->at->refs[sends (self->at) ? PLAN_REF_TRADE_in : PLAN_REF_TRADE_out];
  return plan_schedule_buffer (self->schedule, (guint)ref->array)->dtype;
}

/* Whether both stages are at their trade with each other; an error where they never will be. */
static gboolean
trade_is_complete (const Check *self, guint a, gboolean *out_is_complete, GError **error)
{
  const Stage *mine = &self->stages[a];
  const guint b = peer_of (self, mine);
  const Stage *other = &self->stages[b];
  *out_is_complete = FALSE;
  if (b == self->n || b == a || !other->at)
    return fail (self, a, b, "trades with", error);
  if (other->at->kind != PLAN_OP_TRADE || peer_of (self, other) != a)
    return TRUE;
  if (sends (mine->at) != takes (other->at) || takes (mine->at) != sends (other->at))
    return fail (self, a, b, "does not take what is sent by, or does not send what is taken by,",
                 error);
  if (mine->at->dims[PLAN_DIM_TRADE_count] != other->at->dims[PLAN_DIM_TRADE_count])
    return fail (self, a, b, "trades another number of elements than", error);
  if (format_of (mine) != format_of (other))
    return fail (self, a, b, "trades elements of another format than", error);
  *out_is_complete = TRUE;
  return TRUE;
}

static gboolean
is_same_sum (const Stage *a, const Stage *b)
{
  return b->at->kind == a->at->kind && b->at->group >= 0
         && memcmp (a->at->dims, b->at->dims, sizeof a->at->dims) == 0
         && group_at (a)->size == group_at (b)->size
         && group_at (a)->stride == group_at (b)->stride;
}

static gboolean
sum_is_complete (const Check *self, guint a, gboolean *out_is_complete, GError **error)
{
  const Stage *mine = &self->stages[a];
  const guint rank = plan_schedule_rank (mine->schedule);
  *out_is_complete = TRUE;
  for (guint b = 0; b < self->n; b++)
    {
      const Stage *other = &self->stages[b];
      if (!has_rank (group_at (mine), rank, plan_schedule_rank (other->schedule)))
        continue;
      if (!other->at)
        return fail (self, a, b, "waits for", error);
      *out_is_complete = *out_is_complete && is_same_sum (mine, other);
    }
  return TRUE;
}

/* Lets the participants of stage `a`'s meeting go on, if all have come. */
static gboolean
meet (Check *self, guint a, gboolean *out_has_met, GError **error)
{
  Stage *mine = &self->stages[a];
  const gboolean is_trade = mine->at->kind == PLAN_OP_TRADE;
  const gboolean is_sound = is_trade ? trade_is_complete (self, a, out_has_met, error)
                                     : sum_is_complete (self, a, out_has_met, error);
  if (!is_sound || !*out_has_met)
    return is_sound;
  if (is_trade)
    go_on (self, &self->stages[peer_of (self, mine)]);
  for (guint b = 0; b < self->n && !is_trade; b++)
    if (b != a
        && has_rank (group_at (mine), plan_schedule_rank (mine->schedule),
                     plan_schedule_rank (self->stages[b].schedule)))
      go_on (self, &self->stages[b]);
  go_on (self, mine);
  return TRUE;
}

/* A stage for which stage `a` waits. */
static guint
awaited (const Check *self, guint a)
{
  const Stage *mine = &self->stages[a];
  const guint rank = plan_schedule_rank (mine->schedule);
  if (mine->at->kind == PLAN_OP_TRADE)
    return peer_of (self, mine);
  for (guint b = 0; b < self->n; b++)
    if (b != a && has_rank (group_at (mine), rank, plan_schedule_rank (self->stages[b].schedule))
        && !is_same_sum (mine, &self->stages[b]))
      return b;
  return self->n;
}

gboolean
plan_schedule_check_stages (const PlanSchedule *const *stages, guint n, GError **error)
{
  g_autofree Stage *all = g_new0 (Stage, n + 1);
  Check self = { all, n };
  gboolean has_met = TRUE;
  guint left = 0;
  for (guint i = 0; i < n; i++)
    {
      all[i].schedule = stages[i];
      plan_cursor_start (&all[i].cursor, stages[i], PLAN_SECTION_STEP);
    }
  for (guint i = 0; i < n; i++)
    go_on (&self, &all[i]);
  while (has_met)
    {
      has_met = FALSE;
      left = n;
      for (guint i = 0; i < n; i++)
        {
          gboolean met = FALSE;
          if (all[i].at && !meet (&self, i, &met, error))
            return FALSE;
          has_met |= met;
          left = all[i].at ? MIN (left, i) : left;
        }
    }
  return left == n || fail (&self, left, awaited (&self, left), "waits for ever for", error);
}
