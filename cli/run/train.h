/* CliTraining: a run as its program sees it, from prediction to stored trace. */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
#include "exec/comm.h"
#include "exec/comm/placement.h"
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const AdviseInput *input;
  AdvisePrediction prediction; /* empty on ranks other than 0 */
  ExecJob job;
  guint ranks;
  ExecComm *comm; /* this process's rank under a launcher, or NULL: threads */
  const char *comm_name;
  gboolean joins; /* threads by the backend's own communicator */
  const char *db;
  const char *log, *tensorboard; /* file and folder of what it does, by step; each may be NULL */
  gint64 log_every; /* steps from one line on standard error to the next; 0: each has one, and on a
                       terminal they share it */
  const char *record; /* where the run is written instead of into the store; NULL: nowhere */
  ExecPlacement *placement;
  gboolean failed_together; /* all ranks know why, and none waits for another */

  /* What the job reads and writes; each may be NULL. */
  ExecCheckpoint *resume;
  ExecWeights *weights;
  ExecBlend *tokens, *eval_tokens;
  char *data, *save;
  char **settings;      /* as a checkpoint keeps them */
  guint64 beside_bytes; /* of a rank, that its plan does not know: evaluations, copies to save */
  int save_lock;        /* -1: none */
  PlanCase *eval_of;
} CliTraining;

/* All but the communicator and the placement, which that uses. */
void cli_training_clear (CliTraining *self);

/* Trains, stores and prints. Only rank 0 stores and prints. */
gboolean cli_train (CliTraining *self, CliFormat format, GError **error);

G_END_DECLS
