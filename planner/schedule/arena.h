/* PlanArena: the place of every buffer, known before the first byte is taken.
 *
 * The expanded schedule is walked once, and each alloc of a step gets a fixed offset by first fit
 * over lifetimes in issue order. Buffers of PLAN_CATEGORY_HOST lie in a block of their own, since
 * they take nothing of the device. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_ARENA_ALIGNMENT 64

typedef struct
{
  guint64 size_bytes, host_bytes;   /* of the device's block and of the host's */
  GArray *offsets[PLAN_N_SECTIONS]; /* guint64 per alloc of the section, in issue order, in the
                                       block where its buffer lies */
} PlanArena;

gboolean plan_arena_init (PlanArena *self, const PlanSchedule *schedule, GError **error);

/* As plan_arena_init, with `room` bytes before and behind every buffer that nobody else gets while
 * the buffer lives. `room` is a multiple of the alignment. Used to detect writes outside
 * buffers. */
gboolean plan_arena_init_apart (PlanArena *self, const PlanSchedule *schedule, guint64 room,
                                GError **error);
void plan_arena_clear (PlanArena *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanArena, plan_arena_clear)

G_END_DECLS
