/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/options.h"

#include "advise/adjustments.h"
#include "cli/io/commands.h"
#include "cli/io/config.h"
#include "cli/io/output.h"
#include "cli/io/watch.h"
#include "db/catalogue.h"
#include "db/clusters.h"
#include "db/plans.h"
#include "exec/probe/probe.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/megatron/megatron.h"

#include <stdio.h>
#include <string.h>

int
cli_exit_code (const GError *error)
{
  if (error->domain == G_OPTION_ERROR)
    return 2;
  if (error->domain != PLAN_ERROR)
    return 1;
  switch ((PlanErrorCode)error->code)
    {
    case PLAN_ERROR_INVALID:
      return 2;
    case PLAN_ERROR_INFEASIBLE:
      return 3;
    case PLAN_ERROR_UNSUPPORTED:
    case PLAN_ERROR_IO:
    case PLAN_ERROR_BACKEND:
    case PLAN_ERROR_CORRUPT:
      return 1;
    case PLAN_ERROR_STOPPED:
      return cli_watch_is_interrupted () ? CLI_INTERRUPTED : 4;
    }
  return 1;
}

void
cli_options_clear (CliOptions *self)
{
  char **const texts[]
      = { &self->model, &self->cluster, &self->plan, &self->from_megatron, &self->gbs, &self->seq,
          &self->mbs,   &self->format,  &self->db,   &self->params };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_clear_pointer (texts[i], g_free);
  g_clear_pointer (&self->set, g_strfreev);
  g_clear_pointer (&self->hw, g_strfreev);
}

void
cli_options_add (CliOptions *self, CliContext *context)
{
  const GOptionEntry entries[] = {
    { "model", 0, 0, G_OPTION_ARG_STRING, &self->model,
      "a shipped model by its name or Hugging Face's, a config.json or its folder, or "
      "layers=…,hidden=…",
      "MODEL" },
    { "cluster", 0, 0, G_OPTION_ARG_STRING, &self->cluster,
      "GPUs (64xh100), a shipped cluster with its number of nodes (dgx-h100:4; 1 by default), an "
      ".ini file, a node's topology by NCCL or nvidia-smi ([GPU@]FILE), or local[:RANKS]",
      "CLUSTER" },
    { "hw", 0, 0, G_OPTION_ARG_STRING_ARRAY, &self->hw,
      "what if: another value of a fact of the cluster, as in nic_bandwidth=100Gbit/s, any number "
      "of times; fsdplan show --cluster lists them",
      "FACT=VALUE" },
    { "plan", 0, 0, G_OPTION_ARG_STRING, &self->plan,
      "a plan file, a stored plan as @ID, that of a run as @runID, or - for standard input",
      "FILE" },
    { "from-megatron", 0, 0, G_OPTION_ARG_STRING, &self->from_megatron,
      "a script that starts Megatron-LM, or its log, or - for standard input", "FILE" },
    { "gbs", 0, 0, G_OPTION_ARG_STRING, &self->gbs,
      "global batch: sequences per step over all ranks; needed unless the plan says", "N" },
    { "seq", 0, 0, G_OPTION_ARG_STRING, &self->seq,
      "tokens per sequence; the model's longest by default", "N" },
    { "mbs", 0, 0, G_OPTION_ARG_STRING, &self->mbs,
      "micro batch: sequences that a rank computes at once; 1 by default", "N" },
    { "set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &self->set,
      "any field of a plan, any number of times; fsdplan show --fields lists them", "FIELD=VALUE" },
    { "db", 0, 0, G_OPTION_ARG_STRING, &self->db,
      "the store of plans and runs; $XDG_DATA_HOME/fsdplan/fsdplan.db by default; :memory: keeps "
      "nothing",
      "FILE" },
    { "params", 0, 0, G_OPTION_ARG_STRING, &self->params,
      "what measured runs taught: a set of the store, or the shipped one; " ADVISE_NO_ADJUSTMENTS
      " for none; the newest by default",
      "ID" },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (context, entries);
}

void
cli_options_add_format (CliOptions *self, const char *formats, CliContext *context)
{
  const GOptionEntry entries[] = {
    { "format", 0, 0, G_OPTION_ARG_STRING, &self->format, "of what is printed; table by default",
      formats },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (context, entries);
}

/* Parses "PREFIX", "PREFIX:N" or "PREFIX:NxT". Returns N, or 0 if absent; -1 if `spec` has another
 * prefix, or with an error. *out_threads is T, or 0 if absent. */
static gint64
local_devices (const char *spec, const char *prefix, gint64 *out_threads, GError **error)
{
  const gsize length = strlen (prefix);
  gint64 n = 0;
  *out_threads = 0;
  if (strncmp (spec, prefix, length) != 0 || (spec[length] != '\0' && spec[length] != ':'))
    return -1;
  if (spec[length] == '\0')
    return 0;
  g_auto (GStrv) numbers = g_strsplit (spec + length + 1, "x", 2);
  if (!plan_units_parse_int (numbers[0] ? numbers[0] : "", "--cluster local", 1, 4096, &n, error)
      || (numbers[0] && numbers[1]
          && !plan_units_parse_int (numbers[1], "--cluster local: threads of a rank", 1, 1024,
                                    out_threads, error)))
    return -1;
  return n;
}

/* Describes this machine. Its devices are ranks on processors if those were asked for or there are
 * no GPUs. */
static PlanCluster *
local_cluster (gint64 devices, gint64 threads, gboolean on_processors, GError **error)
{
  g_autoptr (PlanCluster) self = on_processors ? exec_probe_processors (MAX (devices, 1), error)
                                               : exec_probe_cluster (devices, error);
  if (self && threads > 0 && self->kind != PLAN_DEVICE_CPU)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--cluster local: threads are of ranks on processors, and this machine has "
                   "GPUs: write local-cpu:%" G_GINT64_FORMAT "x%" G_GINT64_FORMAT,
                   devices, threads);
      return NULL;
    }
  if (self && threads > 0)
    exec_probe_set_threads (self, threads);
  return g_steal_pointer (&self);
}

/* A cluster of the store, "NAME" or "NAME:N" with N nodes. NULL without an error when there is none
 * of that name; NULL with an error when the file is no store, the cluster's text cannot be read or
 * N is no number of nodes. */
static PlanCluster *
kept_cluster (const char *spec, const char *db, GError **error)
{
  g_autoptr (DbStore) store = NULL;
  if (!db_store_open_if_any (db, &store, error))
    return NULL;
  const char *const colon = strrchr (spec, ':');
  g_autofree char *name = colon ? g_strndup (spec, (gsize)(colon - spec)) : g_strdup (spec);
  g_autofree char *text = store ? db_store_get_cluster (store, name, NULL) : NULL;
  g_autoptr (PlanCluster) self = text ? plan_cluster_parse (text, name, error) : NULL;
  if (self && colon
      && !plan_units_parse_int (colon + 1, "cluster: the number behind the colon", 1, 1000000,
                                &self->nodes, error))
    return NULL;
  return g_steal_pointer (&self);
}

/* The cluster of a spec without ",FACT=VALUE": this machine, a shipped cluster, a file or, where it
 * is none of these, a cluster of the store. */
static PlanCluster *
unchanged_cluster (const char *spec, const char *db, GError **error)
{
  g_autoptr (GError) cause = NULL;
  gint64 threads, cpu_threads = 0;
  const gint64 devices = local_devices (spec, "local", &threads, &cause);
  const gint64 ranks = cause ? -1 : local_devices (spec, "local-cpu", &cpu_threads, &cause);
  if (devices >= 0)
    return local_cluster (devices, threads, FALSE, error);
  if (ranks >= 0)
    return local_cluster (ranks, cpu_threads, TRUE, error);
  g_autoptr (PlanCluster) self = cause ? NULL : plan_cluster_new (spec, &cause);
  if (self)
    return g_steal_pointer (&self);
  g_autoptr (GError) why_kept = NULL;
  self = kept_cluster (spec, db, &why_kept);
  if (!self)
    g_propagate_error (error, why_kept ? g_steal_pointer (&why_kept) : g_steal_pointer (&cause));
  return g_steal_pointer (&self);
}

PlanCluster *
cli_cluster_new (const char *spec, const char *db, GError **error)
{
  g_auto (GStrv) words = g_strsplit (spec, ",", -1);
  if (!words[0] || !words[1] || g_file_test (spec, G_FILE_TEST_EXISTS))
    return unchanged_cluster (spec, db, error);
  g_autoptr (PlanCluster) self = unchanged_cluster (words[0], db, error);
  if (self && plan_cluster_override (self, (const char *const *)words + 1, error))
    return g_steal_pointer (&self);
  g_prefix_error (error, "%s", self ? "cluster: " : "");
  return NULL;
}

/* Takes the line that begins with `key`, "model=" or "cluster=", out of a plan file's text; returns
 * its value, which the caller frees, or NULL. */
static char *
take_line (char **text, const char *key)
{
  g_auto (GStrv) lines = g_strsplit (*text, "\n", -1);
  GString *rest = g_string_new (NULL);
  char *value = NULL;
  for (char **l = lines; *l; l++)
    if (g_str_has_prefix (*l, key))
      {
        g_free (value);
        value = g_strstrip (g_strdup (*l + strlen (key)));
        g_string_append_c (rest, '\n'); /* keeps line numbers in messages right */
      }
    else
      g_string_append_printf (rest, "%s%s", *l, l[1] ? "\n" : "");
  g_free (*text);
  *text = g_string_free (rest, FALSE);
  return value;
}

/* Whether a cluster's spec has no line break, which in a file's name would begin another line of
 * the plan file or job that names it, nor another control character. */
static gboolean
is_one_line (const char *spec, GError **error)
{
  for (const char *c = spec; *c; c++)
    if (g_ascii_iscntrl (*c))
      {
        g_autofree char *shown = plan_text_quote (spec);
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "cluster: %s has a line break or another control character in its name, and "
                     "plans and jobs have it on one line: rename it",
                     shown);
        return FALSE;
      }
  return TRUE;
}

/* Sets the cluster from `spec`, as --cluster takes it, and keeps `spec`, too. */
static gboolean
read_cluster (AdviseInput *input, const char *spec, const char *db, GError **error)
{
  if (!is_one_line (spec, error))
    return FALSE;
  PlanCluster *const cluster = cli_cluster_new (spec, db, error);
  if (!cluster)
    return FALSE;
  g_clear_pointer (&input->cluster, plan_cluster_free);
  g_free (input->cluster_spec);
  input->cluster = cluster;
  input->cluster_spec = g_strdup (spec);
  return TRUE;
}

static gboolean
read_plan_file (const char *path, const char *db, AdviseInput *input, GError **error)
{
  g_autofree char *text = NULL;
  if (!cli_read (path, &text, error))
    return FALSE;
  g_autofree char *model = take_line (&text, "model=");
  g_autofree char *cluster = take_line (&text, "cluster=");
  if (!plan_parse (text, path, &input->plan, error))
    return FALSE;
  if (model && !(input->model = plan_model_new (model, error)))
    return FALSE;
  return !cluster || read_cluster (input, cluster, db, error);
}

/* Finds the plan "@7" of the store, or "@run3", the plan of a run. */
static gboolean
find_stored_plan (DbStore *store, const char *text, gint64 *out_id, GError **error)
{
  gint64 run;
  if (!g_str_has_prefix (text, "@run"))
    return plan_units_parse_int (text + 1, "--plan @ID", 1, G_MAXINT64, out_id, error);
  return plan_units_parse_int (text + 4, "--plan @runID", 1, G_MAXINT64, &run, error)
         && db_store_find_run_plan (store, run, out_id, error);
}

/* What --cluster takes to make a shipped cluster identical to this one, for use in a job script;
 * NULL if there is none. The caller frees. */
static char *
find_spec (const PlanCluster *cluster)
{
  g_autofree char *name = g_strdup_printf ("%s:%" G_GINT64_FORMAT, cluster->name, cluster->nodes);
  g_auto (GStrv) overrides = plan_cluster_overrides (cluster);
  g_autofree char *spec = advise_cluster_words (name, overrides);
  g_autoptr (PlanCluster) shipped
      = plan_cluster_is_shipped (cluster->name) ? cli_cluster_new (spec, NULL, NULL) : NULL;
  g_autofree char *own = plan_cluster_print (cluster);
  g_autofree char *other = shipped ? plan_cluster_print (shipped) : NULL;
  return g_strcmp0 (own, other) == 0 ? g_steal_pointer (&spec) : NULL;
}

static gboolean
read_stored_plan (const CliOptions *options, AdviseInput *input, GError **error)
{
  g_auto (DbPlan) plan = { 0 };
  gint64 id;
  g_autoptr (DbStore) store = db_store_open_readonly (options->db, error);
  if (!store || !find_stored_plan (store, options->plan, &id, error)
      || !db_store_load_plan (store, id, &plan, error))
    return FALSE;
  if (!plan_parse (plan.plan_text, options->plan, &input->plan, error)
      || !(input->model = plan_model_new (plan.model_text, error))
      || !(input->cluster = plan_cluster_parse (plan.cluster_text, options->plan, error)))
    return FALSE;
  input->cluster_spec = find_spec (input->cluster);
  return TRUE;
}

/* Finds the date of the last --set stack=NAME@DATE, on which Megatron-LM's defaults depend. */
static gboolean
find_stack_date (const CliOptions *options, gint64 *out_date, GError **error)
{
  Plan plan;
  plan_init (&plan);
  for (char **s = options->set; s && *s; s++)
    if (g_str_has_prefix (*s, "stack=") && !cli_set_field (&plan, "--set", *s, error))
      return FALSE;
  *out_date = plan.value[PLAN_STACK] / PLAN_STACK_BASE;
  return TRUE;
}

/* --cluster with the number of nodes from Megatron's launcher, if it is the name of a shipped
 * cluster without a number, which facts may follow; otherwise as it is. The caller frees. */
static char *
add_nodes (const char *cluster, gint64 nodes)
{
  const gsize length = strcspn (cluster, ",");
  g_autofree char *name = g_strndup (cluster, length);
  return nodes > 0 && g_strv_contains (plan_cluster_presets (), name)
             ? g_strdup_printf ("%s:%" G_GINT64_FORMAT "%s", name, nodes, cluster + length)
             : g_strdup (cluster);
}

static gboolean
read_megatron_cluster (const CliOptions *options, const PlanMegatron *megatron, AdviseInput *input,
                       GError **error)
{
  if (!options->cluster)
    return TRUE;
  g_autofree char *spec = add_nodes (options->cluster, megatron->nodes);
  if (!read_cluster (input, spec, options->db, error))
    return FALSE;
  const gint64 devices = plan_cluster_devices (input->cluster);
  if (megatron->devices > 0 && megatron->devices != devices)
    fprintf (stderr,
             "%s: warning: starts %" G_GINT64_FORMAT
             " ranks, but --cluster %s has %" G_GINT64_FORMAT " devices, which are used\n",
             options->from_megatron, megatron->devices, spec, devices);
  return TRUE;
}

static gboolean
print_notes (const PlanMegatron *megatron, const char *origin, GError **error)
{
  for (guint i = 0; i < megatron->notes->len; i++)
    {
      g_autofree char *line
          = plan_megatron_note_print (g_ptr_array_index (megatron->notes, i), origin);
      fprintf (stderr, "%s\n", line);
    }
  const guint n = plan_megatron_count (megatron, PLAN_MEGATRON_ERROR);
  if (n == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: Megatron-LM would refuse it for the %s above", origin,
               n == 1 ? "error" : "errors");
  return FALSE;
}

static gboolean
read_megatron (const CliOptions *options, AdviseInput *input, GError **error)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autofree char *text = NULL;
  const char *const origin = options->from_megatron;
  gint64 date;
  if (!find_stack_date (options, &date, error) || !cli_read (origin, &text, error)
      || !plan_megatron_parse (text, origin, date, &megatron, error))
    return FALSE;
  if (options->model)
    {
      if (!(input->model = plan_model_new (options->model, error)))
        return FALSE;
      plan_megatron_note_other_model (&megatron, options->model, input->model);
    }
  if (!print_notes (&megatron, origin, error))
    return FALSE;
  input->plan = megatron.plan;
  if (!input->model && !(input->model = plan_megatron_model (&megatron, error)))
    {
      g_prefix_error (error, "%s: ", origin);
      return FALSE;
    }
  return read_megatron_cluster (options, &megatron, input, error);
}

/* Says where several values may be given, as a list was given in the place of one. */
static void
say_who_takes_lists (GError *error, const char *name)
{
  const char *const who = g_str_equal (name, "stack")
                              ? "several stacks are compared by --set of query"
                              : "several values are taken by --only of query, and by --sweep of "
                                "sim and plot";
  g_autofree char *before = error->message;
  error->message = g_strdup_printf ("%s; %s", before, who);
}

gboolean
cli_set_field (Plan *plan, const char *option, const char *text, GError **error)
{
  g_autoptr (GError) why = NULL;
  const char *equals = strchr (text, '=');
  PlanField field;
  if (!equals)
    {
      g_autofree char *shown = plan_text_quote (text);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s is not FIELD=VALUE", option,
                   shown);
      return FALSE;
    }
  g_autofree char *name = g_strndup (text, (gsize)(equals - text));
  if (plan_set (plan, name, equals + 1, &why))
    return TRUE;
  if (strchr (equals, ',') && plan_field_parse (name, &field, NULL))
    say_who_takes_lists (why, name);
  g_propagate_error (error, g_steal_pointer (&why));
  return FALSE;
}

gboolean
cli_options_apply (const CliOptions *options, Plan *plan, GError **error)
{
  const char *const numbers[][2]
      = { { "gbs", options->gbs }, { "seq", options->seq }, { "mbs", options->mbs } };
  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++)
    if (numbers[i][1] && !plan_set (plan, numbers[i][0], numbers[i][1], error))
      return FALSE;
  for (char **s = options->set; s && *s; s++)
    if (!cli_set_field (plan, "--set", *s, error))
      return FALSE;
  return TRUE;
}

/* Applies --hw to the cluster, wherever that came from. */
static gboolean
change_hardware (AdviseInput *input, char *const *hw, GError **error)
{
  g_autofree char *spec = input->cluster_spec;
  if (!plan_cluster_override (input->cluster, (const char *const *)hw, error))
    {
      g_prefix_error_literal (error, "--hw: ");
      input->cluster_spec = g_steal_pointer (&spec);
      return FALSE;
    }
  input->cluster_spec = spec ? advise_cluster_words (spec, hw) : NULL;
  return TRUE;
}

static gboolean
read_input (const CliOptions *options, const char *default_cluster, AdviseInput *input,
            GError **error)
{
  plan_init (&input->plan);
  if (options->plan && options->from_megatron)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--plan and --from-megatron each give a plan: use one");
      return FALSE;
    }
  if (options->from_megatron && !read_megatron (options, input, error))
    return FALSE;
  if (options->plan && options->plan[0] == '@')
    {
      if (!read_stored_plan (options, input, error))
        return FALSE;
    }
  else if (options->plan && !read_plan_file (options->plan, options->db, input, error))
    return FALSE;
  if (options->model && !options->from_megatron)
    {
      g_clear_pointer (&input->model, plan_model_free);
      if (!(input->model = plan_model_new (options->model, error)))
        return FALSE;
    }
  g_autofree char *cluster = g_strdup (options->from_megatron ? NULL : options->cluster);
  if (!cluster && !input->cluster && default_cluster)
    cluster = g_strdup (default_cluster);
  if (!cluster && !input->cluster && !cli_config_default (CLI_CONFIG_CLUSTER, &cluster, error))
    return FALSE;
  if (cluster && !read_cluster (input, cluster, options->db, error))
    return FALSE;
  if (!input->model || !input->cluster)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s%sa %s is needed: --%s",
                   options->plan ? options->plan : "", options->plan ? " names none: " : "",
                   input->model ? "cluster" : "model",
                   input->model ? "cluster dgx-h100:1, for example"
                                : "model llama3-8b, for example");
      return FALSE;
    }
  if (options->hw && !change_hardware (input, options->hw, error))
    return FALSE;
  /* On a CPU there is only our own runtime. A plan that was read, from whatever place, says its
   * stack itself. */
  if (input->cluster->kind == PLAN_DEVICE_CPU && !options->plan && !options->from_megatron
      && !plan_set (&input->plan, "stack", "native", error))
    return FALSE;
  g_autoptr (GError) cause = NULL;
  g_autofree char *params = g_strdup (options->params);
  input->db = options->db;
  if (cli_config_default (CLI_CONFIG_PARAMS, &params, &cause))
    input->adjustments = advise_adjustments (params, options->db, &cause);
  if (cause)
    {
      g_propagate_error (error, g_steal_pointer (&cause));
      return FALSE;
    }
  return cli_options_apply (options, &input->plan, error);
}

#define USUAL_TOKENS (G_GINT64_CONSTANT (1) << 27) /* more than the tokens of any usual step */

/* Hints at a batch size that was probably meant in tokens, as other programs count it; here it is
 * counted in sequences. */
static void
hint_at_sequences (const AdviseInput *input)
{
  const gint64 gbs = input->plan.value[PLAN_GBS], said = input->plan.value[PLAN_SEQ];
  const gint64 seq = said == PLAN_UNSET ? input->model->max_seq : said;
  if (gbs == PLAN_UNSET || seq <= 0 || gbs <= USUAL_TOKENS / seq)
    return;
  fprintf (stderr,
           "fsdplan: hint: gbs counts sequences, and %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
           " tokens are %.4g tokens a step",
           gbs, seq, (double)gbs * (double)seq);
  if (gbs >= seq)
    fprintf (stderr, "; %" G_GINT64_FORMAT " tokens would be gbs=%" G_GINT64_FORMAT, gbs,
             gbs / seq);
  fputc ('\n', stderr);
}

/* Says, for --verbose, which model, cluster, plan and parameters the answer rests on, and where
 * they were read. */
static void
tell_input (const CliOptions *options, const AdviseInput *input)
{
  const PlanCluster *const cluster = input->cluster;
  g_autofree char *store = NULL, *runs = db_catalogue_runs_path (), *shipped = NULL;
  gint64 version = 0;
  cli_tell ("model %s: %d layers, hidden %d", input->model->name, (int)input->model->layers,
            (int)input->model->hidden);
  cli_tell ("cluster %s: %" G_GINT64_FORMAT " x %s, %s", cluster->name,
            plan_cluster_devices (cluster), cluster->device_name, cluster->source);
  if (options->plan || options->from_megatron)
    cli_tell ("plan: %s", options->plan ? options->plan : options->from_megatron);
  cli_tell ("parameters: %s", input->adjustments ? input->adjustments->id : ADVISE_NO_ADJUSTMENTS);
  if (!db_store_find (options->db, &store, &version, NULL))
    cli_tell ("store: cannot be read");
  else
    cli_tell ("store: %s%s", store,
              version > 0 || g_str_equal (store, ":memory:") ? "" : ", not there yet");
  shipped = g_path_get_dirname (runs);
  cli_tell ("catalogue: in %s", shipped);
}

gboolean
cli_input_read (const CliOptions *options, const char *default_cluster, AdviseInput *out_input,
                GError **error)
{
  g_auto (AdviseInput) input = { 0 };
  if (!read_input (options, default_cluster, &input, error))
    return FALSE;
  if (!options->is_silent)
    hint_at_sequences (&input);
  if (cli_output_is_verbose ())
    tell_input (options, &input);
  *out_input = input;
  input = (AdviseInput){ 0 };
  return TRUE;
}

PlanModel *
cli_model_read (const CliOptions *options, GError **error)
{
  g_auto (AdviseInput) input = { 0 };
  if (!options->from_megatron)
    return plan_model_new (options->model, error);
  return read_megatron (options, &input, error) ? g_steal_pointer (&input.model) : NULL;
}

gboolean
cli_check_explain (const char *explain, GError **error)
{
  if (!explain || strcmp (explain, "memory") == 0 || strcmp (explain, "time") == 0)
    return TRUE;
  g_autofree char *shown = plan_text_quote (explain);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--explain: %s cannot be explained: it must be memory or time", shown);
  return FALSE;
}

#define MAX_DEVICES 1000000

GArray *
cli_parse_gpus (const char *text, GError **error)
{
  g_autoptr (GArray) sizes = g_array_new (FALSE, FALSE, sizeof (gint64));
  g_auto (GStrv) words = g_strsplit (*text ? text : " ", ",", -1); /* an empty text is one word */
  for (char **word = words; *word; word++)
    {
      char *const dots = strstr (*word, "..");
      gint64 size, last;
      if (dots)
        *dots = '\0';
      if (!plan_units_parse_int (*text ? *word : text, "--gpus", 1, MAX_DEVICES, &size, error))
        return NULL;
      last = size;
      if (dots
          && !plan_units_parse_int (dots + strlen (".."), "--gpus", size, MAX_DEVICES, &last,
                                    error))
        return NULL;
      for (; size <= last; size *= 2)
        g_array_append_val (sizes, size);
    }
  return g_steal_pointer (&sizes);
}
