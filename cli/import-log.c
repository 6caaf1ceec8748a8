/* SPDX-License-Identifier: Apache-2.0 */
/* Imports logs: training runs, whose plan is the log's list of arguments or is given on the command
 * line; and times of collectives by nccl-tests. */
#include "config.h"

#include "cli/import.h"

#include "planner/base/error.h"
#include "planner/base/lines.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/megatron/megatron.h"
#include "planner/plan/stack-history.h"
#include "planner/runs/nccl-log.h"
#include "planner/runs/train-log.h"

#include <stdio.h>
#include <string.h>

/* Fewest steps of a run of quality B: fewer say little about a steady step. */
#define MIN_STEPS 3

struct _CliImportLog
{
  char *origin;
  PlanLines *lines;
  PlanTrainLog *train;
  PlanNcclLog *nccl;
};

static void
take_line (guint64 line, char *text, gpointer user_data)
{
  CliImportLog *self = user_data;
  plan_nccl_log_take (self->nccl, line, text);
  plan_train_log_take (self->train, line, text);
}

CliImportLog *
cli_import_log_new (const char *origin)
{
  CliImportLog *self = g_new0 (CliImportLog, 1);
  g_autofree char *name = g_path_get_basename (origin);
  self->origin = g_strdup (origin);
  self->lines = plan_lines_new (take_line, self);
  self->train = plan_train_log_new ();
  self->nccl = plan_nccl_log_new (name);
  return self;
}

void
cli_import_log_free (CliImportLog *self)
{
  if (!self)
    return;
  plan_lines_free (self->lines);
  plan_train_log_free (self->train);
  plan_nccl_log_free (self->nccl);
  g_free (self->origin);
  g_free (self);
}

void
cli_import_log_feed (CliImportLog *self, const char *text, gsize length)
{
  plan_lines_feed (self->lines, text, length);
}

/* Makes the cluster of a run. Where --cluster leaves the number of nodes open, it follows from the
 * run's number of ranks. */
static PlanCluster *
new_cluster (const CliOptions *options, gint64 devices, GError **error)
{
  if (!options->cluster)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "which devices it ran on is not in the log: --cluster dgx-h100, for example");
      return NULL;
    }
  g_autofree char *spec = advise_cluster_words (options->cluster, options->hw);
  g_autoptr (PlanCluster) self = cli_cluster_new (spec, options->db, error);
  if (!self || devices == 0 || plan_cluster_devices (self) == devices)
    return g_steal_pointer (&self);
  if (!strchr (options->cluster, ':') && devices % self->devices_per_node == 0)
    {
      self->nodes = devices / self->devices_per_node;
      return g_steal_pointer (&self);
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "it ran on %" G_GINT64_FORMAT " devices, and --cluster %s has %" G_GINT64_FORMAT,
               devices, options->cluster, plan_cluster_devices (self));
  return NULL;
}

/* Makes the plan of a run from the arguments that Megatron-LM prints; options on the command line
 * take precedence. --set stack=NAME@DATE says by whose defaults the arguments are read. */
static gboolean
read_arguments (const PlanTrainRun *run, const char *origin, const CliOptions *options,
                AdviseInput *input, GError **error)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autofree char *text = g_strconcat (run->arguments, run->padded_vocab, "\n", NULL);
  Plan asked;
  plan_init (&asked);
  if (!cli_options_apply (options, &asked, error)
      || !plan_megatron_parse (text, origin, asked.value[PLAN_STACK] / PLAN_STACK_BASE, &megatron,
                               error))
    return FALSE;
  input->plan = megatron.plan;
  input->model = options->model ? plan_model_new (options->model, error)
                                : plan_megatron_model (&megatron, error);
  if (!input->model || !cli_options_apply (options, &input->plan, error))
    return FALSE;
  input->cluster = new_cluster (options, megatron.devices, error);
  return input->cluster != NULL;
}

static gboolean
read_plan (const PlanTrainRun *run, const char *origin, const CliImportRequest *request,
           AdviseInput *input, GError **error)
{
  const CliOptions *options = request->options;
  if (run->arguments)
    return read_arguments (run, origin, options, input, error);
  if (!options->model && !options->plan && !options->from_megatron)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "this log does not tell what was trained: give it with --plan, or --model, "
                   "--cluster, --gbs and --set");
      return FALSE;
    }
  if (!cli_input_read (options, NULL, input, error))
    return FALSE;
  if (run->kind != PLAN_LOG_TORCHTITAN || options->plan || options->from_megatron)
    return TRUE;
  const gint64 stack = input->plan.value[PLAN_STACK];
  if (stack == PLAN_STACK_MEGATRON_FSDP)
    input->plan.value[PLAN_STACK] = PLAN_STACK_FSDP2; /* torchtitan uses FSDP2 */
  return TRUE;
}

static char *
print_known (double value)
{
  return value > 0 ? plan_units_format_real (value) : NULL;
}

/* Computes the time of a step from tokens per second and device, or the reverse, whichever the log
 * lacks. */
static void
complete_times (PlanTrainRun *run, const AdviseInput *input)
{
  const gint64 *value = input->plan.value;
  const gint64 seq = value[PLAN_SEQ] > 0 ? value[PLAN_SEQ] : input->model->max_seq;
  const double tokens = (double)value[PLAN_GBS] * (double)seq;
  const double devices = (double)plan_cluster_devices (input->cluster);
  if (run->step_ms > 0)
    run->tokens_per_s_per_gpu = 1e3 * tokens / run->step_ms / devices;
  else if (run->tokens_per_s_per_gpu > 0)
    run->step_ms = 1e3 * tokens / run->tokens_per_s_per_gpu / devices;
}

static char *
notes_of (const PlanTrainRun *run)
{
  char spread[G_ASCII_DTOSTR_BUF_SIZE], tflops[G_ASCII_DTOSTR_BUF_SIZE];
  GString *notes = g_string_new (NULL);
  g_string_printf (notes, "steps=%u", run->n_steps);
  if (run->n_steps > 1)
    g_string_append_printf (notes, "; step_spread_pct=%s",
                            g_ascii_formatd (spread, sizeof spread, "%.1f", run->spread_pct));
  if (run->tflops_per_gpu > 0)
    g_string_append_printf (notes, "; logged_tflops_per_gpu=%s",
                            g_ascii_formatd (tflops, sizeof tflops, "%.1f", run->tflops_per_gpu));
  return g_string_free (notes, FALSE);
}

static void
add_run (CliImport *import, const PlanTrainRun *run, const AdviseInput *input,
         const CliImportRequest *request)
{
  g_autofree char *created = cli_import_now ();
  g_autofree char *model = plan_model_print (input->model);
  g_autofree char *cluster = plan_cluster_print (input->cluster);
  g_autofree char *plan = plan_print (&input->plan);
  g_autofree char *whole = g_strconcat (model, "\n", cluster, plan, NULL);
  g_autofree char *notes = notes_of (run);
  g_autofree char *step = print_known (run->step_ms);
  g_autofree char *rate = print_known (run->tokens_per_s_per_gpu);
  g_autofree char *allocated = print_known (run->allocated_mib);
  g_autofree char *most = print_known (run->max_allocated_mib);
  g_autofree char *reserved = print_known (run->reserved_mib);
  g_autofree char *measured = g_strjoin ("|", whole, step ? step : "", allocated ? allocated : "",
                                         most ? most : "", reserved ? reserved : "", notes, NULL);
  g_autofree char *group = cli_import_hash (whole), *row = cli_import_hash (measured);
  g_autofree char *file = g_path_get_basename (import->origin);
  g_autofree char *devices
      = g_strdup_printf ("%" G_GINT64_FORMAT, plan_cluster_devices (input->cluster));
  g_autofree char *nodes = g_strdup_printf ("%" G_GINT64_FORMAT, input->cluster->nodes);
  const gint64 stack = input->plan.value[PLAN_STACK];
  g_autofree char *date
      = stack >= PLAN_STACK_BASE ? plan_stack_date_text (stack / PLAN_STACK_BASE) : NULL;
  const gboolean has_memory = allocated || most || reserved || run->ran_out;
  const char *const cells[][2] = {
    { "created", created },
    { "source", request->source ? request->source : file },
    { "row_id", row },
    { "row_group", group },
    { "use", request->use ? request->use : "fit" },
    { "quality", run->n_steps >= MIN_STEPS ? "B" : "C" },
    { "stack", plan_field_names (PLAN_STACK)[stack % PLAN_STACK_BASE] },
    { "stack_date", date },
    { "model_text", model },
    { "cluster_text", cluster },
    { "gpu", input->cluster->device_name },
    { "gpus", devices },
    { "nodes", nodes },
    { "plan_text", plan },
    { "step_ms", step },
    { "tokens_per_s_per_gpu", rate },
    { "allocated_mib", allocated },
    { "max_allocated_mib", most },
    { "reserved_mib", reserved },
    { "oom", run->n_steps > 0 ? "no"
             : run->ran_out   ? "yes"
                              : NULL },
    { "time_ok", run->step_ms > 0 ? "yes" : "no" },
    { "memory_ok", has_memory ? "yes" : "no" },
    { "notes", notes },
  };
  cli_import_add (import, FALSE, cells, G_N_ELEMENTS (cells), run->line);
}

/* Adds a run of the log. If it is faulty, the other runs are not affected. */
static void
take_run (CliImport *import, const PlanTrainRun *from, const CliImportRequest *request)
{
  g_auto (AdviseInput) input = { 0 };
  g_autoptr (GError) why = NULL;
  PlanTrainRun run = *from;
  import->kind = run.kind == PLAN_LOG_MEGATRON ? "megatron" : "torchtitan";
  gboolean ok = read_plan (&run, import->origin, request, &input, &why);
  if (ok && input.plan.value[PLAN_GBS] == PLAN_UNSET && run.gbs > 0)
    input.plan.value[PLAN_GBS] = run.gbs;
  if (ok && input.plan.value[PLAN_GBS] == PLAN_UNSET)
    {
      ok = FALSE;
      g_set_error (&why, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "the global batch is not in the log: give it with --gbs");
    }
  if (ok && run.gbs > 0 && run.gbs != input.plan.value[PLAN_GBS])
    {
      ok = FALSE;
      g_set_error (&why, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "its last step had a global batch of %" G_GINT64_FORMAT
                   ", and the plan says %" G_GINT64_FORMAT,
                   run.gbs, input.plan.value[PLAN_GBS]);
    }
  if (!ok)
    {
      g_ptr_array_add (import->wrong, g_strdup_printf ("%s:%" G_GUINT64_FORMAT ": %s",
                                                       import->origin, run.line, why->message));
      return;
    }
  complete_times (&run, &input);
  add_run (import, &run, &input, request);
}

/* Why a time cannot be stored; NULL: it can. */
static const char *
reason_against (const PlanNcclTime *time, PlanOpKind op)
{
  return op == PLAN_N_OPS  ? "which collective it was is not said: --op all_gather, for example"
         : time->ranks < 2 ? "over how many ranks is not said, or over one"
         : plan_nccl_time_count (time) == 0 ? "not the same number of elements for every rank"
                                            : NULL;
}

static void
add_time (CliImport *import, const PlanNcclTime *time, PlanOpKind op, guint in_place,
          const CliImportRequest *request)
{
  g_autofree char *created = cli_import_now ();
  g_autofree char *file = g_path_get_basename (import->origin);
  g_autofree char *tool = g_strdup_printf ("nccl-tests%s%s, %s", time->version ? " " : "",
                                           time->version ? time->version : "",
                                           request->source ? request->source : file);
  g_autofree char *machine = cli_import_machine (time->ranks, time->device, MAX (time->nodes, 1));
  g_autofree char *ranks = g_strdup_printf ("%" G_GINT64_FORMAT, time->ranks);
  g_autofree char *shape = g_strdup_printf (
      "count=%" G_GUINT64_FORMAT "%s", plan_nccl_time_count (time), in_place ? " in_place=1" : "");
  g_autofree char *ns = g_strdup_printf ("%" G_GINT64_FORMAT, time->time_ns[in_place]);
  g_autofree char *samples = g_strdup_printf ("%u", MAX (time->iterations, 1));
  const char *host = time->host ? time->host : "not known";
  const char *format = plan_dtype_name (time->dtype);
  g_autofree char *whole
      = g_strjoin ("|", tool, plan_op_name (op), shape, format, machine, host, ns, samples, NULL);
  g_autofree char *hash = cli_import_hash (whole);
  g_autofree char *uid = g_strconcat ("nccl-tests ", hash, NULL);
  const char *const cells[][2]
      = { { "uid", uid },       { "created", created }, { "program_version", tool },
          { "host", host },     { "machine", machine }, { "backend", "cuda" },
          { "comm", "nccl" },   { "ranks", ranks },     { "op", plan_op_name (op) },
          { "shape", shape },   { "format", format },   { "median_ns", ns },
          { "spread_ns", "0" }, { "samples", samples } };
  cli_import_add (import, TRUE, cells, G_N_ELEMENTS (cells), time->line);
}

static gboolean
find_op (const char *name, PlanOpKind *out_op, GError **error)
{
  static const PlanOpKind ops[] = { PLAN_OP_ALL_GATHER, PLAN_OP_REDUCE_SCATTER, PLAN_OP_ALL_REDUCE,
                                    PLAN_OP_ALL_TO_ALL, PLAN_OP_EXCHANGE };
  const char *names[G_N_ELEMENTS (ops) + 1] = { NULL };
  *out_op = PLAN_N_OPS;
  for (guint i = 0; i < G_N_ELEMENTS (ops); i++)
    {
      names[i] = plan_op_name (ops[i]);
      if (name && g_str_equal (name, names[i]))
        *out_op = ops[i];
    }
  if (!name || *out_op != PLAN_N_OPS)
    return TRUE;
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--op: %s is no collective: %s", shown, hint);
  return FALSE;
}

/* Adds times of nccl-tests. A row is identified by a hash of its content, so a copied or repeated
 * line gives no second row. */
static gboolean
take_times (CliImport *import, const GArray *times, const CliImportRequest *request, GError **error)
{
  PlanOpKind asked;
  if (!find_op (request->op, &asked, error))
    return FALSE;
  for (guint i = 0; i < times->len; i++)
    {
      PlanNcclTime time = g_array_index (times, PlanNcclTime, i);
      time.op = time.op == PLAN_N_OPS ? asked : time.op;
      const char *reason = reason_against (&time, time.op);
      if (reason)
        cli_import_skip (import, reason);
      for (guint p = 0; p < 2 && !reason; p++)
        if (time.time_ns[p] > 0)
          add_time (import, &time, time.op, p, request);
    }
  if (times->len > 0)
    import->kind = "nccl-tests";
  return TRUE;
}

gboolean
cli_import_log_end (CliImportLog *self, const CliImportRequest *request, CliImport *import,
                    GError **error)
{
  plan_lines_end (self->lines);
  const GArray *runs = plan_train_log_end (self->train);
  const GArray *times = plan_nccl_log_times (self->nccl);
  if (runs->len == 0 && times->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: nothing in it is known: no columns of a table, no step of Megatron-LM or "
                   "torchtitan, no time of nccl-tests, and no export of a store",
                   self->origin);
      return FALSE;
    }
  if (!take_times (import, times, request, error))
    return FALSE;
  for (guint i = 0; i < runs->len; i++)
    take_run (import, &g_array_index (runs, PlanTrainRun, i), request);
  return TRUE;
}
