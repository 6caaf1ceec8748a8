/* CliStages: predictions and measurements of each stage of a pipeline; of the whole model where
 * there is no pipeline. The lowest rank of a stage stands for it. */
#pragma once
#include "cli/io/output.h"
#include "cli/run/train.h"
#include "exec/walk/stragglers.h"
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

guint cli_stages_n (const CliTraining *self);

/* The rank that stands for a stage. */
guint cli_stages_rank (const CliTraining *self, guint stage);

/* Predictions, on rank 0: the trace of a stage, if it was expanded; its memory; the bytes that all
 * ranks together hold. Borrowed. */
PlanTraceView cli_stages_predicted (const CliTraining *self, guint stage);
const PlanMemory *cli_stages_memory (const CliTraining *self, guint stage);
guint64 cli_stages_device (const CliTraining *self);

/* For ranks that are processes: sends the traces of all stages to rank 0. `own` is this rank's
 * trace. All ranks call it. */
gboolean cli_stages_gather (const CliTraining *self, const PlanTrace *own, PlanTrace **out_traces,
                            GError **error);

/* The memory of each stage, predicted and measured, as a table or as JSON. `times` is by rank. */
CliTable *cli_stages_table (const CliTraining *self, const ExecRankTime *times);
void cli_stages_to_json (const CliTraining *self, const ExecRankTime *times, JsonBuilder *b);

G_END_DECLS
