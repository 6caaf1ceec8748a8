/* SPDX-License-Identifier: Apache-2.0 */
/* The best answer as a card of 80 columns: what to set, how fast, in how much memory, bound by
 * what, how sure, and the next command. */
#include "config.h"

#include "cli/query/query.h"

#include <stdio.h>

static void print_line (const char *label, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void
print_line (const char *label, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *text = g_strdup_vprintf (format, args);
  va_end (args);
  cli_print_row (label, text);
}

/* A time that is exposed, as "exposed gathers 1.2 %"; nothing where it is less than a thousandth.
 */
static void
add_exposed (GString *text, const char *name, gint64 ns, gint64 step_ns)
{
  if (ns * 1000 >= step_ns)
    g_string_append_printf (text, "%s%s %.1f %%", text->len ? ", " : "", name,
                            100.0 * (double)ns / (double)step_ns);
}

/* "GEMMs 73.9 %, attention 14.6 %, …; exposed gathers 0.3 %": shares of the step. */
static char *
describe_time (const AdvisePrediction *p)
{
  const PlanTrace *t = p->trace;
  const char *key, *name;
  guint i = 0;
  GString *text = g_string_new (NULL);
  for (const AdviseWork *work; (work = advise_split_next (&p->split, &i, &key, &name));)
    add_exposed (text, name, work->ns, t->step_ns);
  add_exposed (text, "exposed gathers", t->exposed_gather_ns, t->step_ns);
  add_exposed (text, "exposed reductions", t->exposed_reduce_ns, t->step_ns);
  add_exposed (text, "exposed tensor, context and expert parallelism", t->exposed_tensor_ns,
               t->step_ns);
  add_exposed (text, "exposed copies", t->exposed_copy_ns, t->step_ns);
  add_exposed (text, "waiting for the host", t->host_ns, t->step_ns);
  add_exposed (text, p->stages->len > 0 ? "waiting for other stages" : "idle", t->idle_ns,
               t->step_ns);
  return g_string_free (text, FALSE);
}

/* "@1", or the options that say the plan where the store does not have it. */
static char *
name_plan (const AdviseQuestion *question, gint64 id)
{
  g_autofree char *db = question->db ? g_shell_quote (question->db) : NULL;
  if (id == 0)
    return g_strdup ("FILE");
  return g_strdup_printf ("@%" G_GINT64_FORMAT "%s%s", id, db ? " --db " : "", db ? db : "");
}

/* The next command to type. */
static void
print_next (const AdviseChoice *choice, const AdviseAnswer *best)
{
  const Plan *plan = &best->prediction.of->plan;
  g_autofree char *name = name_plan (choice->question, best->id);
  const gboolean is_own = plan->value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_NATIVE;
  const gboolean is_here = is_own && choice->input->cluster->kind == PLAN_DEVICE_CPU;
  if (best->id == 0)
    print_line ("next", "without --no-keep the plans get numbers, which emit and run take");
  else if (is_here)
    print_line ("next", "fsdplan run --plan %s", name);
  else
    print_line ("next", "fsdplan emit --plan %s", name);
}

void
cli_query_print_card (const AdviseQuery *self, const AdviseChoice *choice)
{
  const AdviseAnswer *best = advise_query_best (self);
  const AdviseInput *input = choice->input;
  const AdvisePrediction *p = &best->prediction;
  const gint64 devices = plan_cluster_devices (input->cluster);
  const Plan *plan = &p->of->plan;
  g_autofree char *stack = plan_field_print (PLAN_STACK, plan->value[PLAN_STACK]);
  g_autofree char *settings = advise_query_differences (&best->found->plan, &input->plan);
  g_autofree char *time = describe_time (p);
  printf ("%s on %" G_GINT64_FORMAT " x %s (%s), stack=%s, gbs=%" G_GINT64_FORMAT
          ", seq=%" G_GINT64_FORMAT "\n\n",
          input->model->name, devices, input->cluster->device_name, input->cluster->name, stack,
          plan->value[PLAN_GBS], plan->value[PLAN_SEQ]);
  cli_print_row ("set", *settings ? settings : "nothing: the defaults are best");
  print_line ("step", "%.1f ms, %.0f tokens/s (%.0f per GPU), %.1f TFLOP/s per GPU, MFU %.1f %%",
              p->step_ms, p->tokens_per_s_per_gpu * (double)devices, p->tokens_per_s_per_gpu,
              p->tflops_per_gpu, 100.0 * p->mfu);
  if (p->p_fits >= 0)
    print_line ("memory", "%.0f of %.0f MiB on each device: fits with a probability of %.3f",
                advise_mib (p->trace->memory.device), advise_mib (input->cluster->memory_bytes),
                p->p_fits);
  else
    print_line ("memory", "%.0f of %.0f MiB on each device", advise_mib (p->trace->memory.device),
                advise_mib (input->cluster->memory_bytes));
  print_line ("bound by", "%s: %s", advise_query_bound_by (p->trace), time);
  g_autofree char *error_range = advise_describe_uncertainty (p->error_range);
  cli_print_row ("how sure", error_range);
  for (guint i = 0; i < p->hazards->len; i++)
    cli_print_row (i == 0 ? "note" : "", p->hazards->pdata[i]);
  print_next (choice, best);
}
