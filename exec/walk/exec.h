/* exec_run: train a model by walking its schedule, one walk per rank.
 *
 * The walk owns order, memory and buffer tags; kernels and comm do what one op
 * says. Every alloc gets the place that was computed before the first byte was
 * taken; reading a buffer that is released, unwritten or of an older step is an
 * error that names the op. */
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

/* How the learning rate falls, to `min_share` of what it was. */
typedef enum
{
  EXEC_DECAY_NONE,
  EXEC_DECAY_LINEAR,
  EXEC_DECAY_COSINE,
  EXEC_DECAY_MINUS_SQRT /* 1 - sqrt (x) */
} ExecDecay;

extern const char *const exec_decay_names[]; /* NULL-terminated */

typedef struct
{
  ExecDecay decay;
  gint64 warmup_steps; /* in which it rises linearly */
  gint64 last_step;    /* at which it has fallen */
  gint64 decay_steps;  /* before that in which it falls, and is held until then; 0: all after the
                          warm-up */
  double min_share;
} ExecRate;

/* Parameters, all alike, that an op is of which no plan's buckets hold; a moment in eight bits has
 * two scales for all of them. */
typedef struct
{
  guint n;
  ExecParam each;
} ExecAlone;

typedef struct
{
  const PlanCase *of; /* for this number of ranks */
  const ExecKernels *kernels;
  guint64 seed;
  gint64 first_step, first_token; /* done and seen before, by the run that `resume` is of */
  gint64 steps;                   /* to do */
  ExecConstants constants;
  ExecRate rate;

  /* Each may be NULL. */
  ExecComm *(*join) (ExecComm *threads, GError **error); /* how ranks that are threads communicate,
                                                            else through memory that they share */
  const ExecAlone *alone;                                /* where ops are timed one by one */
  const ExecCheckpoint *resume;
  const ExecWeights *weights; /* else from the seed */
  const ExecBlend *tokens;    /* else synthetic text */
  const ExecBlend *eval_tokens;
  const char *const *settings; /* "NAME=VALUE" that checkpoints keep, for whoever resumes them */
  const char *save;            /* folder of checkpoints; the last step always makes one */
  gint64 save_every;           /* steps; 0: only then */
  gboolean saves_behind;       /* there is memory for a copy, which is written beside next steps */
  guint keep;                  /* the last so many; 0: EXEC_CHECKPOINT_KEEP */
  const PlanCase *eval_of;     /* the same with task=eval */
  gint64 eval_every;           /* steps; 0: never */
  gint64 document_end;         /* the token that ends documents, where eod_mask_loss is on */
  gint64 eval_batches;         /* global batches that an evaluation is the mean of; 0: one */
  guint timeout_s;       /* how long ranks that are threads wait for one another; 0: for ever */
  gint64 skip_nonfinite; /* steps whose loss or gradient norm is not finite, which change nothing,
                            before the next one ends the run */
  gboolean is_unlisted;  /* of the last step only totals are kept, and no op of its own */

  /* TRUE on any rank: all end before the next step, with a checkpoint; NULL: never. */
  gboolean (*is_stopping) (void);
} ExecJob;

/* What one rank saw. */
typedef struct
{
  double *losses;      /* [steps], mean over the tokens of the global batch */
  double *grad_norms;  /* [steps], before clipping */
  double *eval_losses; /* [steps]; NAN where there was no evaluation */
  gint64 *step_ns;     /* [steps] */
  gint64 *own_ns;      /* [steps], of it, outside of collectives; all where those do not block */
  PlanTrace *trace;    /* of the last step; unlisted: its time and memory alone */
  double imbalance; /* rows of experts of the fullest rank, by the mean, on all ranks; 0: of one */
  guint64 arena_bytes;     /* taken from the system for buffers */
  GByteArray *main_params; /* this rank's final main weights, bucket by bucket, when kept */
} ExecResult;

void exec_result_clear (ExecResult *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecResult, exec_result_clear)

typedef struct
{
  gint64 step; /* from 0 */
  double loss, grad_norm, lr;
  double eval_loss; /* NAN: no evaluation followed */
  gint64 step_ns;
} ExecStep;

/* Called on rank 0 after each step. */
typedef void (*ExecProgress) (gpointer user_data, const ExecStep *step);

/* Runs one rank's schedule; whoever owns the communicator aborts it when this fails. STOPPED on all
 * ranks when one was asked to end. */
gboolean exec_run_schedule (const ExecJob *job, const PlanSchedule *schedule, ExecComm *comm,
                            gboolean keeps_params, ExecProgress progress, gpointer user_data,
                            ExecResult *out_result, GError **error);

/* Of a rank that is a thread, from the communicator of threads to how the job's ranks communicate:
 * what is joined to that is closed with it. */
gboolean exec_join (const ExecJob *job, ExecComm **comm, GError **error);

/* The same for the schedule that the job's plan is lowered to. */
gboolean exec_run_rank (const ExecJob *job, ExecComm *comm, gboolean keeps_params,
                        ExecProgress progress, gpointer user_data, ExecResult *out_result,
                        GError **error);

/* All ranks as threads of this process; out_results has `ranks` elements, the caller's. */
gboolean exec_run_threads (const ExecJob *job, guint ranks, gboolean keeps_params,
                           ExecProgress progress, gpointer user_data, ExecResult *out_results,
                           GError **error);

G_END_DECLS
