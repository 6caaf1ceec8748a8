/* AdviseInput: what every command that needs a plan takes, the same way everywhere. */
#pragma once
#include "advise/input.h"
#include "cli/io/context.h"
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

/* Reads model, cluster and plan. `default_cluster` NULL: --cluster is required. "local" and
 * "local:N" are this machine's GPUs, or ranks on its processors where it has none; "local-cpu:N"
 * are N ranks on its processors, "local-cpu:NxT" of T threads each. */
gboolean cli_input_read (const CliOptions *options, const char *default_cluster,
                         AdviseInput *out_input, GError **error);

/* The model alone, of --model or --from-megatron, one of which is there. */
PlanModel *cli_model_read (const CliOptions *options, GError **error);

/* A cluster by --cluster's rules, with other hardware where ",FACT=VALUE" follows; the last place
 * it is looked for is the store, `db`. */
PlanCluster *cli_cluster_new (const char *spec, const char *db, GError **error);

/* Sets what --gbs, --seq, --mbs and --set say. */
gboolean cli_options_apply (const CliOptions *options, Plan *plan, GError **error);

/* Sets a field from "FIELD=VALUE", as `option` was given it. */
gboolean cli_set_field (Plan *plan, const char *option, const char *text, GError **error);

G_END_DECLS
