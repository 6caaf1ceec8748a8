/* exec_run: train a model by walking its schedule, one walk per rank.
 *
 * The walk owns order, memory and buffer tags; kernels and comm do what one op says. Every buffer
 * gets the place in the arena that was computed before the arena was allocated; reading a buffer
 * that is released, unwritten or of an older step is an error that names the op. */
#pragma once
#include "exec/comm.h"
#include "exec/data/blend.h"
#include "exec/kernels.h"
#include "exec/walk/checkpoint.h"
#include "exec/walk/weights.h"
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include <glib.h>
G_BEGIN_DECLS

/* How the learning rate falls, down to `min_share` of its highest value. */
typedef enum
{
  EXEC_DECAY_NONE,
  EXEC_DECAY_LINEAR,
  EXEC_DECAY_COSINE,
  EXEC_DECAY_MINUS_SQRT /* 1 - sqrt (x), x the share of the decay that is done */
} ExecDecay;

extern const char *const exec_decay_names[]; /* NULL-terminated */

typedef struct
{
  ExecDecay decay;
  gint64 warmup_steps; /* steps over which the rate rises linearly from the start */
  gint64 last_step;    /* the step at which the rate has reached its minimum */
  gint64 decay_steps;  /* steps before `last_step` over which the rate falls; it is constant between
                          warm-up and these; 0: it falls from the end of the warm-up on */
  double min_share;
} ExecRate;

/* The parameters of an op that is timed alone and belongs to no bucket of a plan: `n` of the same
 * shape. Moments in eight bits have two scales for all of them together. */
typedef struct
{
  guint n;
  ExecParam each;
} ExecAlone;

typedef struct
{
  const PlanCase *of; /* the case, for this number of ranks */
  const ExecKernels *kernels;
  guint64 seed;
  gint64 first_step, first_token; /* steps done and tokens seen by the run that `resume` is of */
  gint64 steps;                   /* number of steps to do */
  ExecConstants constants;
  ExecRate rate;

  /* All members from here on are optional: each may be NULL or 0. */
  ExecComm *(*join) (ExecComm *threads, GError **error);
  const ExecAlone *alone; /* set where ops are timed one by one */
  const ExecCheckpoint *resume;
  const ExecWeights *weights; /* weights to begin with; NULL: made from the seed */
  const ExecBlend *tokens;    /* data to train on; NULL: synthetic text */
  const ExecBlend *eval_tokens;
  const char *const *settings; /* "NAME=VALUE" settings that checkpoints keep, for the run that
                                  resumes from them */
  const char *save;            /* folder for checkpoints; the last step always makes one */
  gint64 save_every;           /* steps between checkpoints; 0: only after the last step */
  gboolean saves_behind;   /* a thread may write checkpoints from a copy while training goes on */
  guint keep;              /* number of checkpoints to keep; 0: EXEC_CHECKPOINT_KEEP */
  const PlanCase *eval_of; /* the same case with task=eval */
  gint64 eval_every;       /* steps between evaluations; 0: no evaluations */
  gint64 document_end;     /* the token that ends a document, needed where eod_mask_loss is on */
  gint64 eval_batches;     /* global batches of an evaluation, whose losses are averaged; 0: one */
  guint timeout_s; /* how long ranks that are threads wait for one another; 0: without limit */
  /* How many steps with a loss or gradient norm that is not finite are skipped, without a change of
   * the weights, before such a step ends the run. */
  gint64 skip_nonfinite;
  gboolean totals_only; /* the last step's trace has totals only, no spans of ops */

  /* Asked before each step; when it returns TRUE on any rank, all ranks end with a checkpoint.
   * NULL: the run is never asked to end. */
  gboolean (*is_stopping) (void);
} ExecJob;

/* What one rank measured. */
typedef struct
{
  double *losses;      /* [steps], mean over the tokens of the global batch */
  double *grad_norms;  /* [steps], before clipping */
  double *eval_losses; /* [steps]; NAN where there was no evaluation */
  gint64 *step_ns;     /* [steps] */
  gint64 *own_ns;      /* [steps], the part of step_ns outside of collectives; all of it where
                          collectives do not block */
  PlanTrace *trace;    /* of the last step; with totals_only its time and memory only */
  double imbalance; /* rows sent to the fullest rank's experts over the mean, from all ranks; 0: no
                       expert parallelism */
  double dropped;   /* share of a rank's rows that experts had no capacity for, at most */
  guint64 arena_bytes;     /* of memory that was allocated for buffers */
  GByteArray *main_params; /* this rank's final main weights, bucket after bucket, if asked for */
} ExecResult;

void exec_result_clear (ExecResult *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecResult, exec_result_clear)

typedef struct
{
  gint64 step; /* from 0 */
  double loss, grad_norm, lr;
  double eval_loss; /* NAN: there was no evaluation after this step */
  gint64 step_ns;
} ExecStep;

/* Called on rank 0 after each step. */
typedef void (*ExecProgress) (gpointer user_data, const ExecStep *step);

/* Runs one rank's schedule. When it fails the caller, who owns the communicator, aborts that.
 * PLAN_ERROR_STOPPED on all ranks when one of them was asked to end. */
gboolean exec_run_schedule (const ExecJob *job, const PlanSchedule *schedule, ExecComm *comm,
                            gboolean keeps_params, ExecProgress progress, gpointer user_data,
                            ExecResult *out_result, GError **error);

/* Replaces the communicator of a rank that is a thread by the one that `job->join` makes of it;
 * closing the new one closes the old one, too. Leaves it as it is where the job has no `join`. */
gboolean exec_join (const ExecJob *job, ExecComm **comm, GError **error);

/* Runs one rank's part of the job's plan: lowers the plan and runs the schedule. */
gboolean exec_run_rank (const ExecJob *job, ExecComm *comm, gboolean keeps_params,
                        ExecProgress progress, gpointer user_data, ExecResult *out_result,
                        GError **error);

/* Runs all ranks as threads of this process. The caller provides `ranks` elements in
 * out_results. */
gboolean exec_run_threads (const ExecJob *job, guint ranks, gboolean keeps_params,
                           ExecProgress progress, gpointer user_data, ExecResult *out_results,
                           GError **error);

G_END_DECLS
