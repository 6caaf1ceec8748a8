/* SimRecordStream: the lead, that is how far the host is ahead of the device, as far as memory
 * depends on it.
 *
 * Memory is given back when the host reaches the free; but a block that a collective used on a
 * stream of its own can be handed out again only once that collective is over on the device (c10d's
 * record_stream). Where the device is slower than the host, the host is ahead by as many launches
 * as a stream's queue holds. */
#pragma once
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* Most launches of a stream, events among them, that are issued and not yet over; beyond that the
 * host has to wait. About a thousand by measurement (NVIDIA's developer forum, 68937). */
#define SIM_RECORD_STREAM_MOST 1024

/* By how many percent the slowest host of a tensor-parallel group is slower than this one. Where
 * hosts are the limit, the devices wait for the slowest and the other hosts run ahead. The order of
 * magnitude is assumed; it was chosen with published runs of nanotron in sight. */
#define SIM_RECORD_STREAM_SLOWEST 5

/* For how long a step keeps the host and the device busy, each by itself. */
typedef struct
{
  gint64 host_ns, device_ns;
} SimPace;

SimPace sim_pace_of (const PlanSchedule *schedule, const SimCost *cost);

/* A block that was given back, and the number of launches issued by then. */
typedef struct
{
  guint64 issued;
  guint32 block;
} SimWaiting;

typedef struct
{
  gboolean is_on; /* the stack's allocator waits for collectives, and the host is the faster one */
  double done_share; /* share of the issued launches that the device has done, while its queue is
                        not full */
  guint64 full_from; /* number of launches from which on the queue is full before they are over */
  guint64 issued;    /* launches since host and device last met */
  guint64 over_at;   /* number of launches by which the oldest waiting block comes free; none waits:
                        never */
  GArray *is_in_collective; /* gboolean per buffer array: some collective uses it */
  SimWaiting *waiting;      /* oldest first; the first n_over of them were handed out again */
  guint n_over, n_waiting, room;
} SimRecordStream;

void sim_record_stream_begin (SimRecordStream *self, const PlanSchedule *schedule,
                              const PlanStack *stack, const SimPace *pace);
void sim_record_stream_clear (SimRecordStream *self);

/* Used by the inline functions below. */
void sim_record_stream_make_room (SimRecordStream *self);
guint64 sim_record_stream_done_at (const SimRecordStream *self, guint64 issued);

static inline void
sim_record_stream_issue (SimRecordStream *self, guint64 launches)
{
  self->issued += launches;
}

/* Finds when the oldest waiting block comes free. */
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
                                            : sim_record_stream_done_at (self, issued);
}

/* Gives a block back. FALSE: it comes free at once; TRUE: it waits for a collective. */
static inline gboolean
sim_record_stream_give_back (SimRecordStream *self, guint array, guint32 block)
{
  if (!self->is_on || !g_array_index (self->is_in_collective, gboolean, array))
    return FALSE;
  if (self->n_waiting == self->room)
    sim_record_stream_make_room (self);
  self->waiting[self->n_waiting++] = (SimWaiting){ self->issued, block };
  if (self->over_at == G_MAXUINT64)
    sim_record_stream_find_next (self);
  return TRUE;
}

/* The next block that has come free; FALSE: there is none. */
static inline gboolean
sim_record_stream_next (SimRecordStream *self, guint32 *out_block)
{
  if (self->issued < self->over_at)
    return FALSE;
  *out_block = self->waiting[self->n_over++].block;
  sim_record_stream_find_next (self);
  return TRUE;
}

/* Appends what decides about later blocks to `description` (guint64), and the waiting blocks to
 * `blocks` (guint32). While the lead still grows, no two moments have equal descriptions. */
void sim_record_stream_describe (const SimRecordStream *self, GArray *description, GArray *blocks);

/* Ends a step: the host reads the loss, and so has waited for everything. */
void sim_record_stream_meet (SimRecordStream *self);

G_END_DECLS
