/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the shell around a command: a script, a line, a job. plan_megatron_parse reads each of
 * them back. */
#include "config.h"

#include "planner/emit/emit-private.h"

#define INT "%" G_GINT64_FORMAT
#define NEXT_LINE " \\\n  "
#define SRUN "srun --cpu-bind=none --kill-on-bad-exit=1" NEXT_LINE

static const char *const group_names[] = {
#define X(id, name) name,
  PLAN_EMIT_GROUP_LIST (X)
#undef X
};

/* A comment for the array of data flags. The flags themselves run without any data of the
 * user's. */
static const char data_hint[] = "  # Data of your own, in place of the first two lines:\n"
                                "  # --data-path /data/text_document\n"
                                "  # --tokenizer-type HuggingFaceTokenizer\n"
                                "  # --tokenizer-model /data/tokenizer\n";
static const char training_hint[]
    = "  # Yours to choose, with what becomes of the weights:\n"
      "  # --save /checkpoints --load /checkpoints --save-interval 500\n";

char *
plan_emit_torchrun (const PlanCluster *cluster, const char *separator)
{
  if (cluster->nodes == 1)
    return g_strdup_printf ("torchrun --standalone --nproc-per-node " INT,
                            cluster->devices_per_node);
  return g_strdup_printf ("torchrun --nnodes " INT " --nproc-per-node " INT
                          " --rdzv-backend c10d --rdzv-id fsdplan%s"
                          "--rdzv-endpoint \"${MASTER_ADDR:?the first node}:29500\"",
                          cluster->nodes, cluster->devices_per_node, separator);
}

static void
append_versions (GString *text, const PlanEmitSubject *subject)
{
  const PlanRope *const rope = &subject->of->model->rope;
  plan_emit_for (text, subject, PLAN_EMIT_VERSION);
  g_string_append_c (text, '\n');
  if (rope->scaling == PLAN_ROPE_SCALING_LLAMA3 && rope->factor != 8)
    g_string_append (
        text, "# Its gpt_builders.py drops --rope-scaling-factor, so that the factor is 8: add\n"
              "# rope_scaling_factor=args.rope_scaling_factor to the call of GPTModel there\n");
}

static void
append_environment (GString *text, const PlanEmitCommand *command)
{
  if (command->unsets_connections)
    g_string_append (text, "unset CUDA_DEVICE_MAX_CONNECTIONS # Megatron-FSDP refuses 1\n");
  for (guint i = 0; i < command->environment->len; i++)
    g_string_append_printf (text, "export %s\n", (char *)command->environment->pdata[i]);
}

static void
append_arrays (GString *text, const PlanEmitCommand *command)
{
  for (guint g = 0; g < PLAN_EMIT_N_GROUPS; g++)
    {
      const GPtrArray *const lines = command->groups[g];
      if (lines->len == 0) /* older shells take an empty array for an unset one */
        continue;
      g_string_append_printf (text, "\n%s=(\n", group_names[g]);
      for (guint i = 0; i < lines->len; i++)
        g_string_append_printf (text, "  %s\n", (char *)lines->pdata[i]);
      g_string_append (text, g == PLAN_EMIT_GROUP_DATA       ? data_hint
                             : g == PLAN_EMIT_GROUP_TRAINING ? training_hint
                                                             : "");
      g_string_append (text, ")\n");
    }
}

/* The program of Megatron-LM that trains such a model. */
static const char *
program_of (const PlanEmitSubject *subject)
{
  return *subject->of->model->pattern.of ? "pretrain_hybrid.py" : "pretrain_gpt.py";
}

static void
append_launch (GString *text, const PlanEmitSubject *subject, const PlanEmitCommand *command,
               const char *before)
{
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, NEXT_LINE);
  guint n = 0;
  g_string_append_printf (text, "\n%s%s %s", before, launch, program_of (subject));
  for (guint g = 0; g < PLAN_EMIT_N_GROUPS; g++)
    if (command->groups[g]->len > 0)
      g_string_append_printf (text, "%s\"${%s[@]}\"", n++ % 4 == 0 ? NEXT_LINE : " ",
                              group_names[g]);
  g_string_append_c (text, '\n');
}

char *
plan_emit_script_megatron (const PlanEmitSubject *subject, const PlanEmitCommand *command)
{
  GString *text = g_string_new ("#!/bin/bash\n");
  plan_emit_head (text, subject, PLAN_EMIT_MEGATRON);
  append_versions (text, subject);
  g_string_append (text, subject->of->cluster->nodes == 1
                             ? "# Run it in Megatron-LM's folder\n"
                             : "# Run it in Megatron-LM's folder on every node, with the first "
                               "one's name in MASTER_ADDR\n");
  g_string_append (text, "set -euo pipefail\n\n");
  append_environment (text, command);
  append_arrays (text, command);
  append_launch (text, subject, command, "exec ");
  return g_string_free (text, FALSE);
}

char *
plan_emit_script_line (const PlanEmitSubject *subject, const PlanEmitCommand *command)
{
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, " ");
  GString *text
      = g_string_new (command->unsets_connections ? "env -u CUDA_DEVICE_MAX_CONNECTIONS" : "env");
  for (guint i = 0; i < command->environment->len; i++)
    g_string_append_printf (text, " %s", (char *)command->environment->pdata[i]);
  g_string_append_printf (text, " %s %s", launch, program_of (subject));
  for (guint g = 0; g < PLAN_EMIT_N_GROUPS; g++)
    for (guint i = 0; i < command->groups[g]->len; i++)
      g_string_append_printf (text, " %s", (char *)command->groups[g]->pdata[i]);
  g_string_append_c (text, '\n');
  return g_string_free (text, FALSE);
}

#define OWN_STEPS " --steps 100\n"

/* Options of fsdplan run that are not part of a plan. */
static const char *
own_options (const PlanCluster *cluster)
{
  return cluster->kind == PLAN_DEVICE_GPU ? " --backend cuda" OWN_STEPS : OWN_STEPS;
}

char *
plan_emit_script_line_own (const PlanEmitSubject *subject)
{
  const PlanCluster *const c = subject->of->cluster;
  g_autofree char *model = plan_model_print (subject->of->model);
  g_autofree char *fields = plan_print (&subject->of->plan);
  g_autofree char *cluster = subject->cluster_spec ? g_shell_quote (subject->cluster_spec) : NULL;
  g_auto (GStrv) lines = g_strsplit (fields, "\n", -1);
  GString *text = g_string_new (NULL);
  g_string_append_printf (text, "mpirun -n " INT, plan_cluster_devices (c));
  if (c->nodes > 1)
    g_string_append_printf (text, " --map-by ppr:" INT ":node", c->devices_per_node);
  g_string_append_printf (text, " fsdplan run --model %s", model);
  if (cluster)
    g_string_append_printf (text, " --cluster %s", cluster);
  for (char **line = lines; *line; line++)
    if (**line)
      g_string_append_printf (text, " --set %s", *line);
  g_string_append (text, own_options (c));
  return g_string_free (text, FALSE);
}

/* Directives for sbatch. A node is taken whole, with its memory and processors. */
static void
append_job (GString *text, const PlanEmitSubject *subject, gint64 tasks_per_node)
{
  const PlanCluster *const c = subject->of->cluster;
  g_string_append (text, "#!/bin/bash\n");
  plan_emit_head (text, subject, PLAN_EMIT_SLURM);
  g_string_append_printf (
      text, "#SBATCH --job-name=%s\n#SBATCH --nodes=" INT "\n#SBATCH --ntasks-per-node=" INT "\n",
      subject->of->model->name, c->nodes, tasks_per_node);
  if (c->kind == PLAN_DEVICE_GPU)
    g_string_append_printf (text, "#SBATCH --gpus-per-node=" INT "\n", c->devices_per_node);
  g_string_append (
      text, "#SBATCH --exclusive\n#SBATCH --mem=0\n#SBATCH --output=%x-%j.log\n"
            "# Yours to add: --partition, --account, --time, and srun's --container-image\n");
}

/* Sets the first node's name, at which torchrun meets. */
static void
append_address (GString *text, const PlanCluster *cluster)
{
  if (cluster->nodes > 1)
    g_string_append (text, "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | "
                           "sed -n 1p)\nexport MASTER_ADDR\n");
}

char *
plan_emit_script_slurm (const PlanEmitSubject *subject, const PlanEmitCommand *command)
{
  GString *text = g_string_new (NULL);
  append_job (text, subject, 1);
  append_versions (text, subject);
  g_string_append (text, "# Submit it in Megatron-LM's folder\nset -euo pipefail\n\n");
  append_environment (text, command);
  append_address (text, subject->of->cluster);
  append_arrays (text, command);
  append_launch (text, subject, command, SRUN);
  return g_string_free (text, FALSE);
}

char *
plan_emit_script_slurm_file (const PlanEmitSubject *subject, const char *file, const char *name,
                             const char *environment, const char *program, const char *folder)
{
  GString *text = g_string_new (NULL);
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, NEXT_LINE);
  append_job (text, subject, 1);
  g_string_append_printf (text,
                          "# Submit it in %s folder, which all nodes share\nset -euo pipefail\n\n"
                          "cat >%s <<'END'\n%sEND\n\n",
                          folder, name, file);
  if (environment)
    g_string_append_printf (text, "export %s\n", environment);
  append_address (text, subject->of->cluster);
  g_string_append_printf (text, SRUN "%s %s\n", launch, program);
  return g_string_free (text, FALSE);
}

char *
plan_emit_script_slurm_own (const PlanEmitSubject *subject)
{
  GString *text = g_string_new (NULL);
  g_autofree char *plan = plan_emit_plan (subject);
  append_job (text, subject, subject->of->cluster->devices_per_node);
  g_string_append_printf (text,
                          "# Submit it in a folder that all nodes share\nset -euo pipefail\n\n"
                          "PLAN=plan-$SLURM_JOB_ID.txt\ncat >\"$PLAN\" <<'END'\n%sEND\n\n"
                          "srun --mpi=pmix --kill-on-bad-exit=1 "
                          "fsdplan run --plan \"$PLAN\"%s",
                          plan, own_options (subject->of->cluster));
  return g_string_free (text, FALSE);
}
