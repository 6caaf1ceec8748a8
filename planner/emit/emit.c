/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/emit/emit-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/case/hazards.h"
#include "planner/plan/native.h"
#include "planner/plan/stack.h"

#include <string.h>

static const char *const kinds[] = {
#define X(id, name, summary) name,
  PLAN_EMIT_LIST (X)
#undef X
      NULL
};

static const char *const runtimes[] = { "stack", "megatron", "fsdplan", NULL };

static gboolean
find_name (const char *name, const char *const *names, const char *what, guint *out_at,
           GError **error)
{
  for (guint i = 0; names[i]; i++)
    if (strcmp (names[i], name) == 0)
      {
        *out_at = i;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no %s: %s", what, shown, hint);
  return FALSE;
}

const char *const *
plan_emit_kinds (void)
{
  return kinds;
}

/* Refuses the former name of Megatron-FSDP's call, which PyTorch's call has too. */
static gboolean
check_renamed (const char *name, GError **error)
{
  if (strcmp (name, "fully_shard") == 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "--as: there is no 'fully_shard': Megatron-FSDP's is megatron_fsdp, PyTorch's "
                 "fsdp2");
  return strcmp (name, "fully_shard") != 0;
}

gboolean
plan_emit_kind_parse (const char *name, PlanEmitKind *out_kind, GError **error)
{
  guint at;
  if (!check_renamed (name, error))
    return FALSE;
  if (!find_name (name, kinds, "--as", &at, error))
    return FALSE;
  *out_kind = (PlanEmitKind)at;
  return TRUE;
}

gboolean
plan_emit_runtime_parse (const char *name, PlanEmitRuntime *out_runtime, GError **error)
{
  guint at;
  if (!find_name (name, runtimes, "--runtime", &at, error))
    return FALSE;
  *out_runtime = (PlanEmitRuntime)at;
  return TRUE;
}

void
plan_emit_line (GPtrArray *lines, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_ptr_array_add (lines, g_strdup_vprintf (format, args));
  va_end (args);
}

void
plan_emit_refuse (GPtrArray *reasons, gboolean is_so, const char *format, ...)
{
  va_list args;
  if (!is_so)
    return;
  va_start (args, format);
  g_ptr_array_add (reasons, g_strdup_vprintf (format, args));
  va_end (args);
}

void
plan_emit_command_clear (PlanEmitCommand *self)
{
  for (guint i = 0; i < PLAN_EMIT_N_GROUPS; i++)
    g_clear_pointer (&self->groups[i], g_ptr_array_unref);
  g_clear_pointer (&self->environment, g_ptr_array_unref);
}

void
plan_emit_head (GString *text, const PlanEmitSubject *subject, PlanEmitKind kind)
{
  const PlanCluster *const c = subject->of->cluster;
  g_autofree char *hash = plan_hash (&subject->of->plan);
  g_autoptr (GPtrArray) hazards = plan_hazards_of (subject->of);
  const gint64 imbalance = subject->of->plan.value[PLAN_MOE_IMBALANCE];
  Plan initial;
  plan_init (&initial);
  g_string_append_printf (text,
                          "# %s on %s (%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
                          " %s), plan %s\n# Written by fsdplan emit --as %s\n",
                          subject->of->model->name, c->name, c->nodes, c->devices_per_node,
                          c->device_name, hash, kinds[kind]);
  for (guint i = 0; i < hazards->len; i++)
    g_string_append_printf (text, "# Note: %s\n", (char *)hazards->pdata[i]);
  if (imbalance != initial.value[PLAN_MOE_IMBALANCE])
    {
      g_autofree char *shown = plan_field_print (PLAN_MOE_IMBALANCE, imbalance);
      g_string_append_printf (
          text, "# Note: moe_imbalance=%s is expected of the router; there is no setting for it\n",
          shown);
    }
  if (subject->of->plan.value[PLAN_DOC_TOKENS] > 0)
    g_string_append_printf (text,
                            "# Note: doc_tokens=%" G_GINT64_FORMAT
                            " is expected of the data; there is no setting for it\n",
                            subject->of->plan.value[PLAN_DOC_TOKENS]);
}

char *
plan_emit_plan (const PlanEmitSubject *subject)
{
  g_autofree char *hash = plan_hash (&subject->of->plan);
  g_autofree char *model = plan_model_print (subject->of->model);
  g_autofree char *fields = plan_print (&subject->of->plan);
  GString *text = g_string_new (NULL);
  g_string_append_printf (text, "# plan %s\nmodel=%s\n", hash, model);
  if (subject->cluster_spec)
    g_string_append_printf (text, "cluster=%s\n", subject->cluster_spec);
  else
    g_string_append_printf (text, "# cluster %s of a stored run: give one with --cluster\n",
                            subject->of->cluster->name);
  g_string_append (text, fields);
  return g_string_free (text, FALSE);
}

/* The names of the values whose bits are set, joined by " or "; the caller frees. */
static char *
join_names (PlanField field, guint64 values)
{
  const char *const *const names = plan_field_names (field);
  GString *text = g_string_new (NULL);
  for (guint i = 0; names[i]; i++)
    if (values >> i & 1)
      g_string_append_printf (text, "%s%s", text->len > 0 ? " or " : "", names[i]);
  return g_string_free (text, FALSE);
}

static void
refuse_stack (const PlanEmitSubject *subject, guint taken, const char *version, GPtrArray *reasons)
{
  const gint64 value = subject->of->plan.value[PLAN_STACK];
  const gint64 date = value / PLAN_STACK_BASE, id = value % PLAN_STACK_BASE;
  const gboolean is_taken = taken >> id & 1;
  g_autofree char *name = plan_field_print (PLAN_STACK, value);
  g_autofree char *others = join_names (PLAN_STACK, taken);
  plan_emit_refuse (reasons, !is_taken, "stack=%s: what is written is for stack=%s: use --as %s",
                    name, others,
                    kinds[plan_emit_kind_of (&subject->of->plan, subject->of->cluster)]);
  plan_emit_refuse (reasons, is_taken && date != 0 && date != subject->of->stack->newest,
                    "stack=%s: what is written is for %s: use stack=%s", name, version,
                    plan_field_names (PLAN_STACK)[id]);
}

static const PlanEmitSaid *
find_said (const PlanEmitTarget *target, PlanField field)
{
  for (guint i = 0; i < target->n_said; i++)
    if (target->said[i].field == field)
      return &target->said[i];
  return NULL;
}

/* Whether the target can express a value, or does not know the field and behaves as if it had that
 * value. */
static gboolean
can_say (const PlanEmitTarget *target, PlanField field, gint64 value)
{
  const PlanEmitSaid *const said = find_said (target, field);
  Plan initial;
  if (said)
    return said->values == PLAN_EMIT_ANY || (value >= 0 && value < 64 && said->values >> value & 1);
  plan_init (&initial);
  return value == initial.value[field] || field == PLAN_STACK || field == PLAN_NCCL
         || field == PLAN_MOE_IMBALANCE;
}

static void
refuse_field (const PlanEmitTarget *target, PlanField field, gint64 value, GPtrArray *reasons)
{
  const PlanEmitSaid *const said = find_said (target, field);
  Plan initial;
  plan_init (&initial);
  g_autofree char *shown = plan_field_print (field, value);
  g_autofree char *others = said && plan_field_names (field)
                                ? join_names (field, said->values)
                                : plan_field_print (field, initial.value[field]);
  plan_emit_refuse (reasons, TRUE, "%s=%s: %s has no option for that: use %s",
                    plan_field_name (field), shown, target->name, others);
}

void
plan_emit_refuse_target (const PlanEmitSubject *subject, const PlanEmitTarget *target,
                         GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  refuse_stack (subject, target->stacks, target->version, reasons);
  plan_emit_refuse (reasons, subject->of->cluster->kind != PLAN_DEVICE_GPU,
                    "cluster %s: has no GPUs, which %s needs", subject->of->cluster->name,
                    target->name);
  for (guint f = 0; f < PLAN_N_FIELDS; f++)
    if (!can_say (target, (PlanField)f, value[f]))
      refuse_field (target, (PlanField)f, value[f], reasons);
}

void
plan_emit_refuse_experts (const PlanModel *model, GPtrArray *reasons)
{
  plan_emit_refuse (reasons, model->experts > 0 || model->kv_lora > 0,
                    "model experts, kv_lora: only dense models with plain attention are written");
}

void
plan_emit_own (GString *text, const PlanEmitSubject *subject, const PlanEmitTarget *target)
{
  Plan initial;
  plan_init (&initial);
  for (guint i = 0; i < target->n_said; i++)
    {
      const PlanEmitSaid *const said = &target->said[i];
      const gint64 value = subject->of->plan.value[said->field];
      const gboolean is_idle = said->field == PLAN_SP && subject->of->plan.value[PLAN_TP] == 1;
      if (!said->own || is_idle
          || (value == initial.value[said->field] && said->field != PLAN_COMPUTE))
        continue;
      g_autofree char *shown = plan_field_print (said->field, value);
      g_string_append_printf (text, "#   %s=%s: %s\n", plan_field_name (said->field), shown,
                              said->own);
    }
}

void
plan_emit_for (GString *text, const PlanEmitSubject *subject, const char *version)
{
  g_autofree char *nccl = plan_field_print (PLAN_NCCL, subject->of->plan.value[PLAN_NCCL]);
  if (subject->of->cluster->rocm == PLAN_ANSWER_YES)
    g_string_append_printf (
        text, "# For %s, of which ROCm's builds may be older, with RCCL as NCCL %s", version, nccl);
  else
    g_string_append_printf (text, "# For %s, with NCCL %s", version, nccl);
}

const char *
plan_emit_python (gboolean is_so)
{
  return is_so ? "True" : "False";
}

char *
plan_emit_real (double value)
{
  g_autofree char *shown = plan_units_format_real (value);
  const gsize mantissa = strcspn (shown, "e");
  if (memchr (shown, '.', mantissa))
    return g_steal_pointer (&shown);
  return g_strdup_printf ("%.*s.0%s", (int)mantissa, shown, shown + mantissa);
}

void
plan_emit_refuse_common (const PlanEmitSubject *subject, gboolean takes_megatron,
                         GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  const guint taken
      = 1 << PLAN_STACK_MEGATRON_FSDP | (takes_megatron ? 1 << PLAN_STACK_MEGATRON : 0);
  refuse_stack (subject, taken, PLAN_EMIT_VERSION, reasons);
  plan_emit_refuse (reasons, value[PLAN_UNIT] != PLAN_UNIT_LAYER,
                    "unit=block: its units are layers: use layer");
  plan_emit_refuse (reasons, value[PLAN_FUSED_MASTERS] == PLAN_FUSED_MASTERS_ON,
                    "fused_masters=on: that version's optimizer keeps none: use off");
  plan_emit_refuse (reasons, subject->of->cluster->kind != PLAN_DEVICE_GPU,
                    "cluster %s: has no GPUs, which Megatron-LM needs", subject->of->cluster->name);
}

static gboolean
check_reasons (PlanEmitKind kind, const GPtrArray *reasons, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint i = 0; i < reasons->len; i++)
    g_string_append_printf (text, "%s%s", i > 0 ? "; " : "", (char *)reasons->pdata[i]);
  if (reasons->len > 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "--as %s cannot express this plan: %s",
                 kinds[kind], text->str);
  return reasons->len == 0;
}

static char *
emit_megatron (PlanEmitKind kind, const PlanEmitSubject *subject, GError **error)
{
  g_autoptr (GPtrArray) reasons = g_ptr_array_new_with_free_func (g_free);
  g_auto (PlanEmitCommand) command = { 0 };
  plan_emit_megatron (subject, &command, reasons);
  if (!check_reasons (kind, reasons, error))
    return NULL;
  return kind == PLAN_EMIT_SLURM      ? plan_emit_script_slurm (subject, &command)
         : kind == PLAN_EMIT_TORCHRUN ? plan_emit_script_line (subject, &command)
                                      : plan_emit_script_megatron (subject, &command);
}

/* The kinds that are one file, and how a job starts a program on it. `program` is NULL where a
 * program of the user's own is needed. */
static const struct
{
  PlanEmitKind kind;
  char *(*write) (const PlanEmitSubject *subject, GPtrArray *reasons);
  const char *name, *environment, *program, *folder;
} files[] = {
  { PLAN_EMIT_MEGATRON_FSDP, plan_emit_megatron_fsdp, NULL, NULL, NULL, NULL },
  { PLAN_EMIT_FSDP1, plan_emit_fsdp1, NULL, NULL, NULL, NULL },
  { PLAN_EMIT_FSDP2, plan_emit_fsdp2, NULL, NULL, NULL, NULL },
  { PLAN_EMIT_ACCELERATE, plan_emit_accelerate, NULL, NULL, NULL, NULL },
  { PLAN_EMIT_BRIDGE, plan_emit_bridge, NULL, NULL, NULL, NULL },
  { PLAN_EMIT_TORCHTITAN, plan_emit_torchtitan, "torchtitan_plan.py",
    "PYTORCH_ALLOC_CONF=expandable_segments:True",
    "-m torchtitan.train --module torchtitan_plan --config config", "torchtitan's" },
  { PLAN_EMIT_NANOTRON, plan_emit_nanotron, "nanotron_plan.yaml", "CUDA_DEVICE_MAX_CONNECTIONS=1",
    "run_train.py --config-file nanotron_plan.yaml", "nanotron's" },
};

/* Writes `kind`, or a job around it; `named` is the kind that was asked for. */
static char *
emit_file (PlanEmitKind kind, PlanEmitKind named, const PlanEmitSubject *subject, GError **error)
{
  guint i = 0;
  while (i < G_N_ELEMENTS (files) && files[i].kind != kind)
    i++;
  g_return_val_if_fail (i < G_N_ELEMENTS (files), NULL);
  g_autoptr (GPtrArray) reasons = g_ptr_array_new_with_free_func (g_free);
  const gboolean is_job = named == PLAN_EMIT_SLURM;
  plan_emit_refuse (
      reasons, is_job && !files[i].program,
      "stack=%s: a program of your own trains: start it in a job of yours, with "
      "what --as %s writes",
      plan_field_names (PLAN_STACK)[subject->of->plan.value[PLAN_STACK] % PLAN_STACK_BASE],
      kinds[kind]);
  g_autofree char *text = files[i].write (subject, reasons);
  if (!check_reasons (named, reasons, error))
    return NULL;
  if (!is_job)
    return g_steal_pointer (&text);
  return plan_emit_script_slurm_file (subject, text, files[i].name, files[i].environment,
                                      files[i].program, files[i].folder);
}

/* Checks that our own runtime runs the plan, for its jobs and lines. */
static gboolean
check_own (PlanEmitKind kind, const PlanEmitSubject *subject, GError **error)
{
  g_autoptr (GError) why = NULL;
  const gint64 ranks = plan_data_parallel (&subject->of->plan, subject->of->cluster);
  if (plan_native_runs (&subject->of->plan, subject->of->model, ranks, &why))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "--as %s cannot express this plan: %s",
               kinds[kind], why->message);
  return FALSE;
}

PlanEmitKind
plan_emit_kind_of (const Plan *plan, const PlanCluster *cluster)
{
  static const PlanEmitKind natural[PLAN_STACK_N_VALUES] = {
    [PLAN_STACK_MEGATRON_FSDP] = PLAN_EMIT_MEGATRON, [PLAN_STACK_MEGATRON] = PLAN_EMIT_MEGATRON,
    [PLAN_STACK_FSDP2] = PLAN_EMIT_TORCHTITAN,       [PLAN_STACK_FSDP1] = PLAN_EMIT_FSDP1,
    [PLAN_STACK_NANOTRON] = PLAN_EMIT_NANOTRON,      [PLAN_STACK_NATIVE] = PLAN_EMIT_MPIRUN,
  };
  const gint64 stack = plan->value[PLAN_STACK] % PLAN_STACK_BASE;
  return stack == PLAN_STACK_NATIVE && cluster->nodes > 1 ? PLAN_EMIT_SLURM : natural[stack];
}

static gboolean
is_of_megatron (PlanEmitKind kind)
{
  return kind == PLAN_EMIT_MEGATRON || kind == PLAN_EMIT_TORCHRUN;
}

/* Writes a job that starts what `runtime` says, or the natural kind of the stack. */
static char *
emit_job (PlanEmitRuntime runtime, const PlanEmitSubject *subject, GError **error)
{
  const gint64 stack = subject->of->plan.value[PLAN_STACK] % PLAN_STACK_BASE;
  const PlanEmitKind natural = plan_emit_kind_of (&subject->of->plan, subject->of->cluster);
  if (runtime == PLAN_EMIT_RUNTIME_FSDPLAN
      || (runtime == PLAN_EMIT_RUNTIME_OF_STACK && stack == PLAN_STACK_NATIVE))
    return check_own (PLAN_EMIT_SLURM, subject, error) ? plan_emit_script_slurm_own (subject)
                                                       : NULL;
  if (runtime == PLAN_EMIT_RUNTIME_MEGATRON || is_of_megatron (natural))
    return emit_megatron (PLAN_EMIT_SLURM, subject, error);
  return emit_file (natural, PLAN_EMIT_SLURM, subject, error);
}

char *
plan_emit (PlanEmitKind kind, PlanEmitRuntime runtime, const PlanEmitSubject *subject,
           GError **error)
{
  if (runtime != PLAN_EMIT_RUNTIME_OF_STACK && kind != PLAN_EMIT_SLURM)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--runtime says what a job starts: it is for --as slurm");
      return NULL;
    }
  if (kind == PLAN_EMIT_PLAN)
    return plan_emit_plan (subject);
  if (kind == PLAN_EMIT_MPIRUN)
    return check_own (kind, subject, error) ? plan_emit_script_line_own (subject) : NULL;
  if (kind == PLAN_EMIT_SLURM)
    return emit_job (runtime, subject, error);
  return is_of_megatron (kind) ? emit_megatron (kind, subject, error)
                               : emit_file (kind, kind, subject, error);
}

char *
plan_emit_natural (PlanEmitRuntime runtime, const PlanEmitSubject *subject, char **out_note,
                   GError **error)
{
  static const PlanEmitKind calls[PLAN_STACK_N_VALUES] = {
    [PLAN_STACK_MEGATRON_FSDP] = PLAN_EMIT_MEGATRON_FSDP, [PLAN_STACK_FSDP2] = PLAN_EMIT_FSDP2
  };
  const gint64 stack = subject->of->plan.value[PLAN_STACK] % PLAN_STACK_BASE;
  const PlanEmitKind first = plan_emit_kind_of (&subject->of->plan, subject->of->cluster);
  g_autoptr (GError) why = NULL;
  char *text = plan_emit (first, runtime, subject, &why);
  if (!text && calls[stack])
    text = plan_emit (calls[stack], runtime, subject, NULL);
  if (text && why)
    *out_note = g_strdup_printf ("%s; written as %s", why->message, kinds[calls[stack]]);
  else if (why)
    g_propagate_error (error, g_steal_pointer (&why));
  return text;
}
