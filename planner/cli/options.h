/* CliInput: what every command that needs a plan takes, the same way everywhere. */
#pragma once
#include "planner/cli/context.h"
#include "planner/cluster.h"
#include "planner/model.h"
#include "planner/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* The options as typed; each NULL where absent. */
typedef struct
{
  char *model, *cluster, *plan, *from_megatron, *gbs, *seq, *mbs;
  char **set;
  char *format, *db;
} CliOptions;

void cli_options_clear (CliOptions *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliOptions, cli_options_clear)

/* Adds --model, --cluster, --plan, --from-megatron, --gbs, --seq, --mbs, --set and --db. */
void cli_options_add (CliOptions *self, CliContext *context);

/* Adds --format, which is for commands that print tables. */
void cli_options_add_format (CliOptions *self, CliContext *context);

/* What they mean; `plan` is not resolved. */
typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  char *cluster_spec; /* the words that stand for it; NULL where a stored run gave it */
  Plan plan;
} CliInput;

void cli_input_clear (CliInput *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliInput, cli_input_clear)

/* Reads model, cluster and plan. `default_cluster` NULL: --cluster is required. "local" and
 * "local:N" are this machine with N ranks. */
gboolean cli_input_read (const CliOptions *options, const char *default_cluster,
                         CliInput *out_input, GError **error);

/* The model alone, of --model or --from-megatron, one of which is there. */
PlanModel *cli_model_read (const CliOptions *options, GError **error);

/* A cluster by --cluster's rules. */
PlanCluster *cli_cluster_new (const char *spec, GError **error);

/* Sets a field from "FIELD=VALUE", as `option` was given it. */
gboolean cli_set_field (Plan *plan, const char *option, const char *text, GError **error);

/* "optim_grads_params mbs=1 gbs=128 seq=8192": the fields people look at, then those set otherwise.
 */
char *cli_plan_label (const Plan *resolved);

G_END_DECLS
