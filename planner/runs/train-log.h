/* PlanTrainLog: reads logs of training runs of Megatron-LM and torchtitan: step times, memory and,
 * from Megatron-LM, the argument list.
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

/* One run: from an argument list, or a first step, to the next. 0 is unknown. */
typedef struct
{
  PlanLogKind kind;
  guint64 line;       /* line on which it begins */
  char *arguments;    /* the argument list with its titles; NULL: none */
  char *padded_vocab; /* the line about the padded vocabulary; NULL: none */
  guint n_steps;      /* steps that were timed */
  double step_ms;     /* Megatron-LM: median, without the first two steps where there are more */
  double spread_pct;  /* half of the distance between the 10th and 90th percentiles */
  double tokens_per_s_per_gpu; /* torchtitan: likewise */
  double tflops_per_gpu;
  gint64 gbs;                                            /* Megatron-LM: sequences */
  double allocated_mib, max_allocated_mib, reserved_mib; /* of the fullest rank */
  gboolean ran_out;                                      /* of memory */
} PlanTrainRun;

typedef struct _PlanTrainLog PlanTrainLog;

PlanTrainLog *plan_train_log_new (void);
void plan_train_log_free (PlanTrainLog *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanTrainLog, plan_train_log_free)

/* Takes a line without its line end; changes it in place. */
void plan_train_log_take (PlanTrainLog *self, guint64 line, char *text);

/* Ends reading. Returns every run with a measurement, in order; the log owns them. */
const GArray *plan_train_log_end (PlanTrainLog *self); /* of PlanTrainRun */

G_END_DECLS
