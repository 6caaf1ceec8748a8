/* SimRecordStream: how far the host is ahead of the device, as far as memory depends on it.
 *
 * Memory is given back when the host gets there; but blocks that a collective used on a stream of
 * its own can be handed out again only once that is over on the device (c10d's record_stream).
 * Where the device is the slower one, the host is ahead by as many launches as a stream holds. */
#pragma once
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* Launches, events among them, that are issued and not over; beyond that the host has to wait. A
 * thousand per stream by measurement (NVIDIA's developer forum, 68937). */
#define SIM_RECORD_STREAM_MOST 1024

/* By that many percent the slowest host of a tensor-parallel group is slower than this one: where
 * hosts are the limit, devices wait for that one, and the others run ahead. Of the right order;
 * chosen with published runs of nanotron in sight. */
#define SIM_RECORD_STREAM_SLOWEST 5

/* What a step keeps the host and the device busy for, each for itself. */
typedef struct
{
  gint64 host_ns, device_ns;
} SimPace;

SimPace sim_pace_of (const PlanSchedule *schedule, const SimCost *cost);

/* A block that was given back, and how much was issued by then. */
typedef struct
{
  guint64 issued;
  guint32 block;
} SimWaiting;

typedef struct
{
  gboolean is_on;      /* the stack's allocator waits for collectives */
  double done_share;   /* of what the host has issued, while no queue is full */
  guint64 full_from;   /* what is issued from there on is not over before the queue is full */
  guint64 issued;      /* launches since host and device met */
  guint64 over_at;     /* of those, when the oldest block that waits is over; none does: never */
  GArray *is_used;     /* gboolean per buffer array: by a collective */
  SimWaiting *waiting; /* oldest first; the first ones are handed out again */
  guint n_over, n_waiting, room;
} SimRecordStream;

void sim_record_stream_begin (SimRecordStream *self, const PlanSchedule *schedule,
                              const PlanStack *stack, const SimPace *pace);
void sim_record_stream_clear (SimRecordStream *self);

/* For the two below. */
void sim_record_stream_make_room (SimRecordStream *self);
guint64 sim_record_stream_over_early (const SimRecordStream *self, guint64 issued);

static inline void
sim_record_stream_issue (SimRecordStream *self, guint64 launches)
{
  self->issued += launches;
}

/* When the oldest that waits is over. */
static inline void
sim_record_stream_find_next (SimRecordStream *self)
{
  if (self->n_over == self->n_waiting)
    {
      self->n_over = self->n_waiting = 0;
      self->over_at = G_MAXUINT64;
      return;
    }
  const guint64 issued = self->waiting[self->n_over].issued;
  self->over_at = issued >= self->full_from ? issued + SIM_RECORD_STREAM_MOST
                                            : sim_record_stream_over_early (self, issued);
}

/* FALSE: the block comes free at once. */
static inline gboolean
sim_record_stream_give_back (SimRecordStream *self, guint array, guint32 block)
{
  if (!self->is_on || !g_array_index (self->is_used, gboolean, array))
    return FALSE;
  if (self->n_waiting == self->room)
    sim_record_stream_make_room (self);
  self->waiting[self->n_waiting++] = (SimWaiting){ self->issued, block };
  if (self->over_at == G_MAXUINT64)
    sim_record_stream_find_next (self);
  return TRUE;
}

/* The next block that comes free by now; FALSE: none does. */
static inline gboolean
sim_record_stream_next (SimRecordStream *self, guint32 *out_block)
{
  if (self->issued < self->over_at)
    return FALSE;
  *out_block = self->waiting[self->n_over++].block;
  sim_record_stream_find_next (self);
  return TRUE;
}

/* Appends what decides about the future to `text` (guint64), and the blocks that wait to `blocks`
 * (guint32). While the lead still grows, no two moments are alike. */
void sim_record_stream_describe (const SimRecordStream *self, GArray *text, GArray *blocks);

/* A step is over: the host reads the loss, and so has waited for everything. */
void sim_record_stream_meet (SimRecordStream *self);

G_END_DECLS
