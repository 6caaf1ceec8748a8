/* AdviseInput: the options for model, cluster and plan, which all commands take in the same way. */
#pragma once
#include "advise/input.h"
#include "cli/io/context.h"
#include <glib.h>
G_BEGIN_DECLS

/* The options as typed; each is NULL where absent. */
typedef struct
{
  char *model, *cluster, *plan, *from_megatron, *gbs, *seq, *mbs;
  char **set, **hw;
  char *format, *db, *params;
  gboolean is_silent; /* no hints are given, because another process gives them */
} CliOptions;

void cli_options_clear (CliOptions *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliOptions, cli_options_clear)

/* Adds --model, --cluster, --hw, --plan, --from-megatron, --gbs, --seq, --mbs, --set and --db. */
void cli_options_add (CliOptions *self, CliContext *context);

/* Adds --format, with CLI_FORMATS or further values, to a command that prints tables. */
#define CLI_FORMATS "table|csv|json"
void cli_options_add_format (CliOptions *self, const char *formats, CliContext *context);

/* Reads model, cluster and plan. `default_cluster` NULL: --cluster is required. "local" and
 * "local:N" are this machine's GPUs, or without GPUs ranks on its processors; "local-cpu:N" is N
 * ranks on its processors, "local-cpu:NxT" with T threads each. */
gboolean cli_input_read (const CliOptions *options, const char *default_cluster,
                         AdviseInput *out_input, GError **error);

/* Reads the model alone, from --model or --from-megatron, one of which is given. */
PlanModel *cli_model_read (const CliOptions *options, GError **error);

/* Makes the cluster that `spec` describes, as --cluster takes it, with changed hardware where
 * ",FACT=VALUE" follows. Names are looked up last in the store `db`. */
PlanCluster *cli_cluster_new (const char *spec, const char *db, GError **error);

/* Sets the fields given by --gbs, --seq, --mbs and --set. */
gboolean cli_options_apply (const CliOptions *options, Plan *plan, GError **error);

/* Sets a field from "FIELD=VALUE"; errors name the option it came from. */
gboolean cli_set_field (Plan *plan, const char *option, const char *text, GError **error);

/* Whether a value of --explain is "memory" or "time"; NULL: the option was not given. */
gboolean cli_check_explain (const char *explain, GError **error);

/* Reads a value of --gpus into an array of gint64, in the order that it is written: "8..1024" is 8
 * and its doublings up to 1024, "8,16,48" a list, of which elements may be ranges, too. */
GArray *cli_parse_gpus (const char *text, GError **error);

G_END_DECLS
