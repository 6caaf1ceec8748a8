/* CliInput: what every command that needs a plan takes, the same way everywhere. */
#pragma once
#include "planner/cli/context.h"
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "sim/cost/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* The options as typed; each NULL where absent. */
typedef struct
{
  char *model, *cluster, *plan, *from_megatron, *gbs, *seq, *mbs;
  char **set, **hw;
  char *format, *db, *params;
  gboolean is_silent; /* gives no hints: another process does */
} CliOptions;

void cli_options_clear (CliOptions *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliOptions, cli_options_clear)

/* Adds --model, --cluster, --hw, --plan, --from-megatron, --gbs, --seq, --mbs, --set and --db. */
void cli_options_add (CliOptions *self, CliContext *context);

/* Adds --format with its values, CLI_FORMATS and perhaps more, to a command that prints tables. */
#define CLI_FORMATS "table|csv|json"
void cli_options_add_format (CliOptions *self, const char *formats, CliContext *context);

/* What they mean; `plan` is not resolved. */
typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  char *cluster_spec; /* the words that stand for it; NULL: none, the store gave it */
  Plan plan;
  const SimAdjustments *adjustments; /* NULL: none */
  const char *db;                    /* the store, for what was timed on this machine; borrowed */
  const char *comm;                  /* what carries collectives there; NULL: threads */
  guint cudnn;         /* whose words on attention are taken; 0: the newest's that are known */
  gboolean is_of_many; /* of processes that may have a store each: only what is shipped is taken */
} CliInput;

void cli_input_clear (CliInput *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliInput, cli_input_clear)

/* Reads model, cluster and plan. `default_cluster` NULL: --cluster is required. "local" and
 * "local:N" are this machine's GPUs, or ranks on its processors where it has none; "local-cpu:N"
 * are N ranks on its processors. */
gboolean cli_input_read (const CliOptions *options, const char *default_cluster,
                         CliInput *out_input, GError **error);

/* The model alone, of --model or --from-megatron, one of which is there. */
PlanModel *cli_model_read (const CliOptions *options, GError **error);

/* A cluster by --cluster's rules, with other hardware where ",FACT=VALUE" follows; the last place
 * it is looked for is the store, `db`. */
PlanCluster *cli_cluster_new (const char *spec, const char *db, GError **error);

/* The words for a cluster with what --hw says, which may be NULL, in place of what it has; the
 * caller frees. */
char *cli_cluster_words (const char *spec, char *const *hw);

/* A cluster's name, and how it differs from the one of that name; the caller frees. */
char *cli_cluster_name (const PlanCluster *cluster);

/* Sets what --gbs, --seq, --mbs and --set say. */
gboolean cli_options_apply (const CliOptions *options, Plan *plan, GError **error);

/* Sets a field from "FIELD=VALUE", as `option` was given it. */
gboolean cli_set_field (Plan *plan, const char *option, const char *text, GError **error);

/* "optim_grads_params mbs=1 gbs=128 seq=8192": the fields people look at, then those set otherwise.
 */
char *cli_plan_label (const Plan *resolved);

G_END_DECLS
