/* PlanMegatron: a Megatron-LM command line, or the argument list in its log, read as a plan.
 *
 * Only the text is read; nothing is run and no file is opened. What Megatron-LM would refuse is a
 * note of severity ERROR and not a failure: the caller decides what to do about it. */
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
  Plan plan; /* not resolved; gbs is unset where neither a flag nor the devices determine it */
  gint64 nodes, devices; /* 0 where the text does not state them */
  GPtrArray *notes;      /* PlanMegatronNote, by line */
} PlanMegatron;

/* Reads a shell script, a command line or a log. `stack_date` (yyyymmdd; 0: the newest version)
 * determines the defaults. INVALID, with `origin` and the line, for what cannot be read. */
gboolean plan_megatron_parse (const char *text, const char *origin, gint64 stack_date,
                              PlanMegatron *out, GError **error);

void plan_megatron_clear (PlanMegatron *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanMegatron, plan_megatron_clear)

/* The text's model; an error where it does not give one that can be modelled. */
PlanModel *plan_megatron_model (const PlanMegatron *self, GError **error);

/* Adds a note if `model`, which the user asked for by that name, is not the text's model. */
void plan_megatron_note_other_model (PlanMegatron *self, const char *name, const PlanModel *model);

/* The number of notes of a severity. */
guint plan_megatron_count (const PlanMegatron *self, PlanMegatronSeverity severity);

/* A note as text, "FILE:12: warning: --flag: text"; the caller frees. */
char *plan_megatron_note_print (const PlanMegatronNote *note, const char *origin);

/* The flag with the same values as a field of a plan; FALSE where there is none. */
gboolean plan_megatron_flag_of_field (PlanField field, PlanMegatronFlag *out_flag);

G_END_DECLS
