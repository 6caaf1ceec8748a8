/* CliTraining: a run as its program sees it, from prediction to stored trace. */
#pragma once
#include "exec/comm.h"
#include "exec/exec.h"
#include "planner/cli/output.h"
#include "planner/cli/predict.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const CliInput *input;
  CliPrediction prediction; /* empty on ranks other than 0 */
  ExecJob job;
  guint ranks;
  ExecComm *comm; /* this process's rank under a launcher, or NULL: threads */
  const char *comm_name;
  gboolean joins; /* threads by the backend's own communicator */
  const char *db;

  /* What the job reads and writes; each may be NULL. */
  ExecCheckpoint *resume;
  ExecWeights *weights;
  ExecTokens *tokens, *eval_tokens;
  char *data, *save;
  Plan eval_plan;
} CliTraining;

/* All but the communicator. */
void cli_training_clear (CliTraining *self);

/* Trains, stores and prints. Only rank 0 stores and prints. */
gboolean cli_train (CliTraining *self, CliFormat format, GError **error);

G_END_DECLS
