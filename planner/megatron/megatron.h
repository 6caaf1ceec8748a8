/* PlanMegatron: a Megatron-LM command line, or the argument list in its log, as a plan.
 *
 * Read from text alone; nothing is run and no file is opened. What Megatron-LM would refuse is a
 * note of severity ERROR and not a failure: what to make of it is the caller's business. */
#pragma once
#include "planner/megatron/megatron-settings.h"
#include "planner/megatron/megatron-shape.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  PlanMegatronShape shape;
  Plan plan;             /* not resolved; gbs is unset where neither flag nor devices tell it */
  gint64 nodes, devices; /* 0 where the text does not say */
  GPtrArray *notes;      /* PlanMegatronNote, by line */
} PlanMegatron;

/* Reads a shell script, a command line or a log. `stack_date` (yyyymmdd; 0: the newest version)
 * decides the defaults. INVALID, with `origin` and the line, for what cannot be read. */
gboolean plan_megatron_parse (const char *text, const char *origin, gint64 stack_date,
                              PlanMegatron *out, GError **error);

void plan_megatron_clear (PlanMegatron *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanMegatron, plan_megatron_clear)

/* The model; an error where the text does not give one that can be modelled. */
PlanModel *plan_megatron_model (const PlanMegatron *self, GError **error);

/* Adds a note where `model`, which was asked for by that name, is not the one of the text. */
void plan_megatron_note_other_model (PlanMegatron *self, const char *name, const PlanModel *model);

/* How many notes are of that severity. */
guint plan_megatron_count (const PlanMegatron *self, PlanMegatronSeverity severity);

/* "FILE:12: warning: --flag: text"; the caller frees. */
char *plan_megatron_note_print (const PlanMegatronNote *note, const char *origin);

/* The flag that says the same as a field of a plan, value for value; FALSE where there is none. */
gboolean plan_megatron_flag_of_field (PlanField field, PlanMegatronFlag *out_flag);

G_END_DECLS
