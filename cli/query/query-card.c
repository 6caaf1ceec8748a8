/* SPDX-License-Identifier: Apache-2.0 */
/* The best answer as a card of 80 columns: settings, time, memory, what bounds it, uncertainty, and
 * the next command. */
#include "config.h"

#include "cli/query/query.h"

#include "planner/base/units.h"

/* Adds a share of the step's time, as "exposed gathers 1.2 %", unless it is below a thousandth. */
static void
add_share (GString *text, const char *name, gint64 ns, gint64 step_ns)
{
  if (ns * 1000 >= step_ns)
    g_string_append_printf (text, "%s%s %.1f %%", text->len ? ", " : "", name,
                            100.0 * (double)ns / (double)step_ns);
}

/* The shares of the step's time, as "GEMMs 73.9 %, attention 14.6 %, …; exposed gathers 0.3 %". The
 * caller frees. */
static char *
describe_time (const AdvisePrediction *p)
{
  const PlanTrace *t = p->trace;
  const char *key, *name;
  guint i = 0;
  GString *text = g_string_new (NULL);
  for (const AdviseWork *work; (work = advise_split_next (&p->split, &i, &key, &name));)
    add_share (text, name, work->ns, t->step_ns);
  add_share (text, "exposed gathers", t->exposed_gather_ns, t->step_ns);
  add_share (text, "exposed reductions", t->exposed_reduce_ns, t->step_ns);
  add_share (text, "exposed tensor, context and expert parallelism", t->exposed_tensor_ns,
             t->step_ns);
  add_share (text, "exposed copies", t->exposed_copy_ns, t->step_ns);
  add_share (text, "waiting for the host", t->host_ns, t->step_ns);
  add_share (text, p->stages->len > 0 ? "waiting for other stages" : "idle", t->idle_ns,
             t->step_ns);
  return g_string_free (text, FALSE);
}

/* How a model's state is spread: "optim_grads_params (ZeRO-3, FSDP): weights, gradients and
 * optimizer state over 8 devices, in 2 replicas (HSDP); tp=2, ep=4 (experts over 4)"; the caller
 * frees. */
static char *
describe_sharding (const Plan *plan, const PlanCluster *cluster)
{
  static const char *const what[] = {
    [PLAN_STRATEGY_NO_SHARD] = "(DDP): every device has all weights, gradients and optimizer state",
    [PLAN_STRATEGY_OPTIM] = "(ZeRO-1): optimizer state",
    [PLAN_STRATEGY_OPTIM_GRADS] = "(ZeRO-2): gradients and optimizer state",
    [PLAN_STRATEGY_OPTIM_GRADS_PARAMS] = "(ZeRO-3, FSDP): weights, gradients and optimizer state",
  };
  static const PlanField groups[] = { PLAN_TP, PLAN_CP, PLAN_PP, PLAN_VPP, PLAN_EP, PLAN_ETP };
  const gint64 *value = plan->value, replicas = value[PLAN_DP_OUTER];
  const gint64 ranks = plan_data_parallel (plan, cluster) * value[PLAN_CP] / replicas;
  g_autofree char *strategy = plan_field_print (PLAN_STRATEGY, value[PLAN_STRATEGY]);
  GString *text = g_string_new (strategy);
  g_string_append_printf (text, " %s", what[value[PLAN_STRATEGY]]);
  if (value[PLAN_STRATEGY] != PLAN_STRATEGY_NO_SHARD)
    g_string_append_printf (text, " over %" G_GINT64_FORMAT " device%s", ranks,
                            ranks == 1 ? ", so not split" : "s");
  if (replicas > 1)
    g_string_append_printf (text, ", in %" G_GINT64_FORMAT " replicas %s", replicas,
                            value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM
                                ? "over which the optimizer state is split further (HFSDP)"
                                : "(HSDP)");
  const char *separator = "; ";
  for (guint i = 0; i < G_N_ELEMENTS (groups); i++)
    if (value[groups[i]] > 1)
      {
        g_string_append_printf (text, "%s%s=%" G_GINT64_FORMAT, separator,
                                plan_field_name (groups[i]), value[groups[i]]);
        separator = ", ";
      }
  if (value[PLAN_EP] > 1 && value[PLAN_STRATEGY] != PLAN_STRATEGY_NO_SHARD)
    g_string_append_printf (text, " (experts over %" G_GINT64_FORMAT ")",
                            plan_cluster_devices (cluster) / value[PLAN_PP] / value[PLAN_EP]
                                / value[PLAN_ETP] / replicas);
  return g_string_free (text, FALSE);
}

/* How --plan names an answer: "@1" and perhaps --db; FILE where it is not stored. The caller
 * frees. */
static char *
name_plan (const AdviseQuestion *question, gint64 id)
{
  g_autofree char *db = question->db ? g_shell_quote (question->db) : NULL;
  if (id == 0)
    return g_strdup ("FILE");
  return g_strdup_printf ("@%" G_GINT64_FORMAT "%s%s", id, db ? " --db " : "", db ? db : "");
}

/* Adds the next command to type. */
static void
add_next (GArray *rows, const AdviseChoice *choice, const AdviseAnswer *best)
{
  const Plan *plan = &best->prediction.of->plan;
  g_autofree char *name = name_plan (choice->question, best->id);
  const gboolean is_own = plan->value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_NATIVE;
  const gboolean is_here = is_own && choice->input->cluster->kind == PLAN_DEVICE_CPU;
  if (best->id == 0)
    cli_rows_add (rows, "next", "%s the plans get numbers, which emit and run take",
                  choice->question->keeps_nothing ? "without --no-keep"
                                                  : "with --db FILE, a store that can be written,");
  else if (is_here)
    cli_rows_add (rows, "next", "fsdplan run --plan %s", name);
  else
    cli_rows_add (rows, "next", "fsdplan emit --plan %s", name);
}

char *
cli_query_title (const AdviseQuery *self, const AdviseChoice *choice)
{
  const AdviseInput *input = choice->input;
  const Plan *plan = &advise_query_best (self)->prediction.of->plan;
  g_autofree char *stack = plan_field_print (PLAN_STACK, plan->value[PLAN_STACK]);
  return g_strdup_printf ("%s on %" G_GINT64_FORMAT " x %s (%s), stack=%s, gbs=%" G_GINT64_FORMAT
                          ", seq=%" G_GINT64_FORMAT,
                          input->model->name, plan_cluster_devices (input->cluster),
                          input->cluster->device_name, input->cluster->name, stack,
                          plan->value[PLAN_GBS], plan->value[PLAN_SEQ]);
}

/* Explains a batch that the number of devices does not divide: it leaves few data-parallel ranks,
 * whatever else is chosen, which the user may not have meant. */
static void
add_batch (GArray *rows, const AdviseInput *input, const Plan *plan)
{
  const gint64 devices = plan_cluster_devices (input->cluster), gbs = plan->value[PLAN_GBS];
  const gint64 most = plan_units_gcd (gbs, devices);
  if (gbs < devices || most == devices || plan_data_parallel (plan, input->cluster) < most)
    return;
  cli_rows_add (rows, "batch",
                "gbs=%" G_GINT64_FORMAT " must be split evenly: at most %" G_GINT64_FORMAT
                " data-parallel ranks on %" G_GINT64_FORMAT " devices; gbs=%" G_GINT64_FORMAT
                " would allow %" G_GINT64_FORMAT,
                gbs, most, devices, (gbs + devices / 2) / devices * devices, devices);
}

GArray *
cli_query_card (const AdviseQuery *self, const AdviseChoice *choice)
{
  const AdviseAnswer *best = advise_query_best (self);
  const AdviseInput *input = choice->input;
  const AdvisePrediction *p = &best->prediction;
  const double used = advise_mib (p->trace->memory.device);
  const double of = advise_mib (input->cluster->memory_bytes);
  g_autofree char *settings = advise_query_differences (&best->found->plan, &input->plan);
  g_autofree char *time = describe_time (p);
  g_autofree char *error_range = advise_describe_uncertainty (p);
  g_autofree char *sharding = describe_sharding (&p->of->plan, input->cluster);
  g_autofree char *flops = plan_units_format_flops (1e12 * p->tflops_per_gpu);
  GArray *rows = cli_rows_new ();
  cli_rows_add (rows, "sharding", "%s", sharding);
  cli_rows_add (rows, "set", "%s", *settings ? settings : "nothing: the defaults are best");
  cli_rows_add (rows, "step", "%.1f ms, %.0f tokens/s (%.0f per GPU), %s per GPU, MFU %.1f %%",
                p->step_ms, p->tokens_per_s_per_gpu * (double)plan_cluster_devices (input->cluster),
                p->tokens_per_s_per_gpu, flops, 100.0 * p->mfu);
  if (p->p_fits >= 0)
    cli_rows_add (rows, "memory",
                  "%.0f of %.0f MiB on each device: fits with a probability of %.3f", used, of,
                  p->p_fits);
  else
    cli_rows_add (rows, "memory", "%.0f of %.0f MiB on each device", used, of);
  cli_rows_add (rows, "bound by", "%s: %s", advise_query_bound_by (p), time);
  cli_rows_add (rows, "how sure", "%s", error_range);
  for (guint i = 0; i < p->hazards->len; i++)
    cli_rows_add (rows, i == 0 ? "note" : "", "%s", (const char *)p->hazards->pdata[i]);
  add_batch (rows, input, &best->found->plan);
  add_next (rows, choice, best);
  return rows;
}
