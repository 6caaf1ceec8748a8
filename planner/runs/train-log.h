/* PlanTrainLog: what the log of a training run tells: how long steps took, how much memory, and,
 * where Megatron-LM printed it, its argument list. Reads Megatron-LM and torchtitan.
 *
 * Lines of several ranks may be mixed, and the end may be missing. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_LOG_MEGATRON,
  PLAN_LOG_TORCHTITAN,
} PlanLogKind;

/* One run: from one argument list, or first step, to the next. 0 is not known. */
typedef struct
{
  PlanLogKind kind;
  guint64 line;                /* of its first word */
  char *arguments;             /* the argument list with its titles; NULL: none */
  char *padded_vocab;          /* the line on the padded vocabulary; NULL: none */
  guint n_steps;               /* that were timed */
  double step_ms;              /* Megatron-LM: median without the first two, where there are more */
  double spread_pct;           /* half of the distance between the 10th and the 90th percentile */
  double tokens_per_s_per_gpu; /* torchtitan, likewise */
  double tflops_per_gpu;
  gint64 gbs;                                            /* sequences; Megatron-LM */
  double allocated_mib, max_allocated_mib, reserved_mib; /* of the fullest rank */
  gboolean ran_out;                                      /* of memory */
} PlanTrainRun;

typedef struct _PlanTrainLog PlanTrainLog;

PlanTrainLog *plan_train_log_new (void);
void plan_train_log_free (PlanTrainLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanTrainLog, plan_train_log_free)

/* A line without its end; changed in place. */
void plan_train_log_take (PlanTrainLog *self, guint64 line, char *text);

/* Every run that says something that was measured, in order; owned by the log. Ends reading. */
const GArray *plan_train_log_end (PlanTrainLog *self); /* of PlanTrainRun */

G_END_DECLS
