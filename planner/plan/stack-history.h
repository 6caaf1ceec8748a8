/* What changed in each framework, and when.
 *
 * A record of stack.h says what holds after a stack's newest change. */
#pragma once
#include "planner/plan/stack.h"
#include <glib.h>
G_BEGIN_DECLS

/* One change of a stack's behaviour. */
typedef struct
{
  gint64 date; /* yyyymmdd */
  const char *source;
  const char *summary; /* what changed, and what it means for a plan */
} PlanStackChange;

/* The i-th change of a stack, oldest first; NULL past the last. */
const PlanStackChange *plan_stack_change (const PlanStack *self, guint i);

/* The date that a release stands for: when its branch left the main branch ("core_v0.18.0"). 0 if
 * no release has this name. */
gint64 plan_stack_release_date (gint64 stack, const char *release);

/* The i-th release that is known of a stack, oldest first; NULL past the last. */
const char *plan_stack_release (const PlanStack *self, guint i);

char *plan_stack_date_text (gint64 date); /* "2026-08-22" of 20260822; the caller frees */

G_END_DECLS
