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
  const char *summary; /* what changed, with what it means for a plan */
} PlanStackChange;

/* What changed in that stack, oldest first; NULL past the last. */
const PlanStackChange *plan_stack_change (const PlanStack *self, guint i);

/* The date that a release stands for ("core_v0.18.0": where its branch left the main one); 0 when
 * there is none of that name. */
gint64 plan_stack_release_date (gint64 stack, const char *release);

/* The releases that are known, oldest first; NULL past the last. */
const char *plan_stack_release (const PlanStack *self, guint i);

char *plan_stack_date_text (gint64 date); /* "2026-08-22" of 20260822; the caller frees */

G_END_DECLS
