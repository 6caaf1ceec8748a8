/* CliTraining: a run as its program sees it, from the prediction to the stored trace. */
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
  AdvisePrediction prediction; /* on rank 0 only */
  ExecJob job;
  guint ranks;
  ExecComm *comm; /* this process's rank under a launcher; NULL: ranks are threads */
  const char *comm_name;
  gboolean joins; /* ranks are threads with the backend's own communicator */
  const char *db;
  const char *log, *tensorboard; /* file and folder of logs; each may be NULL */
  gint64 log_every;   /* steps between lines on standard error; 0: a line for each step, or on a
                         terminal one that is redrawn */
  const char *record; /* file that the run is written to instead of the store; NULL: the store */
  ExecPlacement *placement;
  gboolean failed_together; /* all ranks have failed alike, so none waits for another */

  /* What the job reads and writes; each may be NULL. */
  ExecCheckpoint *resume;
  ExecWeights *weights;
  ExecBlend *tokens, *eval_tokens;
  char *data, *save;
  char **settings;      /* those that checkpoints keep */
  guint64 beside_bytes; /* of a rank, beyond its plan: evaluations, copies of checkpoints */
  int save_lock;        /* file descriptor of the lock; -1: none */
  PlanCase *eval_of;
} CliTraining;

/* Clears all but the communicator and the placement, which the communicator uses. */
void cli_training_clear (CliTraining *self);

/* Trains, stores and prints. Only rank 0 stores and prints. */
gboolean cli_train (CliTraining *self, CliFormat format, GError **error);

G_END_DECLS
