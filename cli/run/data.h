/* Token sources of a run: --data, --shuffle, --epochs, --eval-data. */
#pragma once
#include "cli/run/train.h"
#include <glib.h>
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* As typed; each text may be NULL. */
typedef struct
{
  const char *data, *eval_data, *epochs, *steps, *end;
  gboolean is_shuffled, shuffles_documents;
} CliDataOptions;

/* Opens the data of a job whose plan and seed are known; of a resumed one the checkpoint is open.
 * --epochs become the job's steps, those before the checkpoint included. */
gboolean cli_data_open (CliTraining *self, const CliDataOptions *options, GError **error);

/* Says on standard error which sources the run sees more than once. */
void cli_data_say (const CliTraining *self);

/* Every source, how much it has, and how often the run sees it: members of an open object. */
void cli_data_to_json (const CliTraining *self, JsonBuilder *builder);

G_END_DECLS
