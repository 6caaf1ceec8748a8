/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/runs/run-table.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Run A2 of Megatron-LM PR #3067, in the columns that matter. */
static const char header[]
    = "row_id,group,use,stack,stack_date,source,quality,family,layers,hidden,ffn,heads,kv_heads,"
      "head_dim,vocab,tied,seq,gpu,gpus,gpus_per_node,mbs,gbs,tp,sp,pp,vpp,cp,ep,experts,topk,"
      "expert_ffn,shared_expert_ffn,first_dense_layers,strategy,dp_outer,outer_strategy,compute,"
      "param_gather,main_params,main_grads,grad_comm,exp_avg,exp_avg_sq,precision_aware,optimizer,"
      "recompute,recompute_modules,recompute_method,recompute_layers,double_buffer,nccl_ub,compile,"
      "offload_optimizer,offload_activations,task,oom,step_ms,tokens_per_s_per_gpu,tflops_per_gpu,"
      "tflops_kind,allocated_mib,max_allocated_mib,reserved_mib,device_mib,time_ok,memory_ok,notes";
static const char a2[]
    = "pr3067-a2,pr3067-a2,fit,megatron-fsdp,2026-02,PR #3067 (A2),A,llama,32,4096,14336,32,8,128,"
      "128384,no,8192,h100-80gb,8,8,1,128,1,no,1,1,1,1,,,,,,optim_grads_params,1,,fp8-delayed,fp8,"
      "fp32,fp32,fp32,fp32,fp32,no,adam,none,,,,no,no,,0,none,pretrain,no,10893.1,12032.6,619.4,"
      "model-causal,18516.73,60039.38,66490,,yes,yes,date=2026-02-27; nic_gbit_per_gpu=400; "
      "ce_fusion="
      "yes";

/* The rows and complaints of a table; rows borrow texts from the table, which is kept for that. */
typedef struct
{
  PlanRunTable *table;
  GArray *rows;
  GString *wrong;
} Read;

static void
take (PlanRunRow *row, const char *wrong, gpointer user_data)
{
  Read *self = user_data;
  if (row)
    {
      g_array_append_vals (self->rows, row, 1);
      *row = (PlanRunRow){ 0 };
    }
  else
    g_string_append_printf (self->wrong, "%s\n", wrong);
}

static void
row_clear (gpointer row)
{
  plan_run_row_clear (row);
}

static gboolean
read_begin (Read *self, const char *text, GError **error)
{
  *self = (Read){ NULL, g_array_new (FALSE, FALSE, sizeof (PlanRunRow)), g_string_new (NULL) };
  g_array_set_clear_func (self->rows, row_clear);
  self->table = plan_run_table_new ("runs.csv", take, self);
  return plan_run_table_feed (self->table, text, strlen (text), error)
         && plan_run_table_end (self->table, error);
}

static void
read_clear (Read *self)
{
  g_array_unref (self->rows);
  plan_run_table_free (self->table);
  g_string_free (self->wrong, TRUE);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Read, read_clear)

/* The table of A2 with some cells changed: "COLUMN=VALUE|COLUMN=VALUE"; `notes+` adds to notes. */
static char *
table_with (const char *changes)
{
  g_auto (GStrv) names = g_strsplit (header, ",", -1);
  g_auto (GStrv) cells = g_strsplit (a2, ",", -1);
  g_auto (GStrv) pairs = g_strsplit (changes, "|", -1);
  for (char **pair = pairs; *pair; pair++)
    {
      g_auto (GStrv) halves = g_strsplit (*pair, "=", 2);
      const gboolean adds = g_str_equal (halves[0], "notes+");
      guint c = 0;
      while (names[c] && !g_str_equal (names[c], adds ? "notes" : halves[0]))
        c++;
      ck_assert_msg (names[c] != NULL, "%s", halves[0]);
      char *value = adds ? g_strjoin ("; ", cells[c], halves[1], NULL) : g_strdup (halves[1]);
      g_free (cells[c]);
      cells[c] = value;
    }
  g_autofree char *row = g_strjoinv (",", cells);
  return g_strdup_printf ("%s\n%s\n", header, row);
}

/* The only row of the table, which has a cluster. */
static const PlanRunRow *
read_placed (Read *read, const char *changes)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = table_with (changes);
  ck_assert (read_begin (read, text, &error));
  const PlanRunRow *row = &g_array_index (read->rows, PlanRunRow, 0);
  ck_assert_msg (row->cluster != NULL, "%s", row->skipped);
  return row;
}

START_TEST (a_row_is_a_plan)
{
  g_auto (Read) read = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *text = table_with ("");
  ck_assert_msg (read_begin (&read, text, &error), "%s", error ? error->message : "");
  ck_assert_str_eq (read.wrong->str, "");
  ck_assert_uint_eq (read.rows->len, 1);
  const PlanRunRow *row = &g_array_index (read.rows, PlanRunRow, 0);
  ck_assert_msg (!row->skipped, "%s", row->skipped);
  ck_assert_ptr_null (row->remarks);
  g_autofree char *plan = plan_print (&row->plan);
  ck_assert_str_eq (plan, "stack=megatron-fsdp@2026-02-27\nmbs=1\ngbs=128\nseq=8192\n"
                          "compute=fp8-delayed\nparam_gather=fp8\n");
  g_autofree char *model = plan_model_print (row->model);
  ck_assert_str_eq (model, "family=llama,layers=32,hidden=4096,ffn=14336,heads=32,kv_heads=8,"
                           "head_dim=128,vocab=128384,max_seq=8192");
  ck_assert_int_eq (plan_cluster_devices (row->cluster), 8);
  ck_assert_double_eq (row->cluster->nic_bytes_per_s, 50e9);
  ck_assert_uint_eq (row->line, 2);
  ck_assert_double_eq (row->measured[PLAN_RUN_QUANTITY_TIME], 10893.1);
  ck_assert_double_eq (row->measured[PLAN_RUN_QUANTITY_ALLOCATED], 18516.73);
  ck_assert_double_eq (row->measured[PLAN_RUN_QUANTITY_DEVICE], 0);
  ck_assert_int_eq (row->ran_out, PLAN_ANSWER_NO);
  ck_assert (row->is_for_fitting && row->time_ok && row->memory_ok && !row->is_tiny);
}
END_TEST

/* Changed cells, and the plan's text that they lead to, or why there is none, or what is wrong. */
static const struct
{
  const char *changes, *plan, *skipped, *wrong, *remarks;
} cases[] = {
  { "main_grads=bf16|grad_comm=bf16|precision_aware=yes|notes+=fused_adam_master_weights=yes",
    "main_grads=bf16\ngrad_comm=bf16\nprecision_aware=on\nfused_masters=on\n", NULL, NULL, NULL },
  { "optimizer=adam-master", "fused_masters=on\n", NULL, NULL, NULL },
  { "dp_outer=2|outer_strategy=optim", "dp_outer=2\nouter_strategy=optim\n", NULL, NULL, NULL },
  { "dp_outer=1|outer_strategy=optim", "@2026-02-27\nmbs=1\n", NULL, NULL, NULL },
  { "tp=2|sp=yes|cp=2", "tp=2\ncp=2\nsp=on\n", NULL, NULL, NULL },
  { "pp=2", "pp=2\n", NULL, NULL, NULL },
  { "double_buffer=yes|nccl_ub=yes|compile=yes", "double_buffer=on\nnccl_ub=on\n", NULL, NULL,
    NULL },
  { "recompute=full|recompute_method=per-layer", "recompute=full\n", NULL, NULL, NULL },
  { "recompute=full|recompute_method=block|recompute_layers=16",
    "recompute=full\nrecompute_method=block\nrecompute_layers=16\n", NULL, NULL, NULL },
  { "recompute=selective|recompute_modules=layernorm+mlp",
    "recompute=selective\nrecompute_modules=mlp+layernorm\n", NULL, NULL, NULL },
  { "offload_activations=20|offload_optimizer=0.25", "offload_optimizer=0.25\noffload_layers=20\n",
    NULL, NULL, NULL },
  { "compute=bf16|param_gather=bf16", "mbs=1\ngbs=128\nseq=8192\n", NULL, NULL, NULL },
  { "compute=fp16|param_gather=fp16|main_grads=fp16", "compute=fp16\nmain_grads=fp16\n", NULL, NULL,
    NULL },
  { "stack=fsdp2|compile=yes", "stack=fsdp2", NULL, NULL, NULL },
  { "stack=fsdp2|stack_date=2026-04|notes=", "loss_chunks=8\n", NULL, NULL, NULL },
  { "stack=fsdp2|stack_date=2026-04|tied=yes|notes=", "stack=fsdp2", NULL, NULL, NULL },
  { "stack=fsdp2|stack_date=2025-03|notes+=ce=chunked", "loss_chunks=8\n", NULL, NULL, NULL },
  { "notes+=deterministic=yes; overlap=none; communication_unit_size=800000000; per_token_loss=no",
    "comm_unit=800000000\noverlap_grad_reduce=off\noverlap_param_gather=off\n", NULL, NULL, NULL },
  { "notes+=grad_accumulation_fusion=yes; ce_fusion=yes; nan_check=report_nan_in_param_grad",
    "grad_accum_fusion=on\nnan_check=params\n", NULL, NULL, NULL },
  { "source=NVIDIA/Megatron-LM tests/x|notes=",
    "grad_accum_fusion=on\nper_token_loss=off\nce_fusion=off\n", NULL, NULL, NULL },
  { "stack=megatron|strategy=optim|notes=", "grad_accum_fusion=on\n", NULL, NULL, NULL },
  { "tp=2|sp=yes|notes=tp_overlap=ub", "tp_overlap=ub\n", NULL, NULL, NULL },
  { "tp=2|sp=yes|notes=tp_overlap=none", "tp=2\nsp=on\n", NULL, NULL, NULL },
  { "tp=2|sp=yes|notes=|source=NVIDIA/dgxc-benchmarking llama3.1/README.md@v25.04",
    "tp_overlap=ub\n", NULL, NULL, NULL },
  { "source=NVIDIA/dgxc-benchmarking llama3.1/README.md@v25.04", "mbs=1\n", NULL, NULL, NULL },
  { "source=NVIDIA/Megatron-LM PR #3067 (A1)", "empty_cache=on\n", NULL, NULL, NULL },
  { "step_ms=|notes=ce_fusion=no", "ce_fusion=off\n", NULL, NULL, NULL },
  { "notes=date=2020-05", "@2026-01-21\n", NULL, NULL,
    "of 2020-05 what is nearest is known: 2026-01-21" },
  { "notes=|stack_date=26.02.01", "@2026-02-28\n", NULL, NULL, NULL },
  { "notes=|stack_date=", "@2026-08-22\n", NULL, NULL,
    "of unknown date what is nearest is known: 2026-08-22" },
  { "grad_comm=|optimizer=", "grad_comm=auto\n", NULL, NULL,
    "optimizer is not known: adam is assumed; grad_comm is not known: that of main_grads is "
    "assumed" },
  { "param_gather=", "compute=fp8-delayed\n", NULL, NULL,
    "param_gather is not known: bf16 is assumed" },
  { "notes+=dropout=0.1; tp_overlap=none", "hidden_dropout=0.1\nattention_dropout=0.1\n", NULL,
    NULL, NULL },
  { "notes+=dropout=0", "mbs=1\n", NULL, NULL, NULL },
  { "tp=2|sp=yes|stack=fsdp2|compile=yes|notes=tp_overlap=async", "tp_overlap=async\n", NULL, NULL,
    NULL },
  { "notes+=tp_overlap=flux", "mbs=1\n", NULL, NULL,
    "tp_overlap=flux is not modelled: tensor-parallel communication beside products" },
  { "stack=deepspeed", NULL, "stack deepspeed: not one that plans know", NULL, NULL },
  { "family=deepseek", NULL, "mla: latent attention whose ranks are not known", NULL, NULL },
  { "recompute=", NULL, "recompute is not known: nothing is assumed in its place", NULL, NULL },
  { "layers=", NULL, "layers is not known: nothing is assumed in its place", NULL, NULL },
  { "vpp=2|pp=2", "pp=2\nvpp=2\n", NULL, NULL, NULL },
  { "compute=fp8", NULL, "compute fp8: recipe unknown", NULL, NULL },
  { "compute=fp8-rowwise", NULL, "compute fp8-rowwise: a recipe without a model", NULL, NULL },
  { "compute=bf16|param_gather=fp32", NULL, "param_gather fp32: weights that compute in bf16", NULL,
    NULL },
  { "optimizer=muon", NULL, "optimizer muon: another update rule", NULL, NULL },
  { "strategy=optim_params", NULL, "strategy optim_params: whole gradients beside sharded weights",
    NULL, NULL },
  { "task=lora", NULL, "task lora: adapters", NULL, NULL },
  { "task=rl", NULL, "task rl: a loss over what a policy said", NULL, NULL },
  { "recompute=selective|recompute_modules=graph-sac", NULL,
    "recompute_modules graph-sac: no module of a plan", NULL, NULL },
  { "offload_activations=residual", NULL, "offload_activations residual: which tensors is not said",
    NULL, NULL },
  { "notes+=attention=unfused", NULL, "attention=unfused: scores that are kept and read again",
    NULL, NULL },
  { "notes+=attention=fp8", NULL, "attention=fp8: products of attention in fp8", NULL, NULL },
  { "notes+=grad_sync=last", "grad_sync=last\n", NULL, NULL, NULL },
  { "notes+=ce=fused_linear", NULL, "ce=fused_linear: a loss in one kernel with the last product",
    NULL, NULL },
  { "notes+=loss=eager", "mbs=1\n", NULL, NULL,
    "loss=eager is not modelled: a loss op by op in fp32 beside compiled layers" },
  { "notes+=adam=foreach", "adam_foreach=on\n", NULL, NULL, NULL },
  { "notes+=kernels=x", "mbs=1\n", NULL, NULL,
    "kernels=x is not modelled: kernels that a source puts in place of the stack's" },
  { "notes+=moe_transport=x", NULL,
    "moe_transport=x: rows of experts that a library of its own sends", NULL, NULL },
  { "notes+=experts=padded", NULL, "experts=padded: experts padded to the busiest one", NULL,
    NULL },
  { "notes+=te_op_fuser=yes", "mbs=1\n", NULL, NULL,
    "te_op_fuser=yes is not modelled: operations that Transformer Engine fuses" },
  { "gpu=tpu-v5", NULL, "gpu tpu-v5: not a shipped device", NULL, NULL },
  { "gpus=12", NULL, "gpus: 12 are no whole nodes of 8", NULL, NULL },
  { "family=lama", NULL, NULL, "family: 'lama' is not one of these tables: did you mean 'llama'?",
    NULL },
  { "family=", NULL, NULL, "family: it may not be empty: known are llama, qwen2,", NULL },
  { "family=  ", NULL, NULL, "family: it may not be empty", NULL },
  { "layers=many", NULL, NULL, "layers: ", NULL },
  { "heads=7|head_dim=|kv_heads=", NULL, NULL, "model: head_dim: missing", NULL },
  { "step_ms=-1", NULL, NULL, "step_ms: ", NULL },
  { "allocated_mib=1e-320", NULL, NULL,
    "allocated_mib: '1e-320' is out of range: it must be 0 or from 1e-06 to 1e+15", NULL },
  { "tied=maybe", NULL, NULL, "tied: 'maybe' must be yes, no or empty", NULL },
  { "use=both", NULL, NULL, "use: 'both' must be fit, report or empty", NULL },
  { "source=", NULL, NULL, "source: it may not be empty", NULL },
  { "strategy=zero4", NULL, NULL, "strategy: 'zero4' must be", NULL },
  { "compute=fp9", NULL, NULL, "compute: 'fp9' must be", NULL },
  { "notes+=communication_unit_size=much", NULL, NULL, "notes: comm_unit: ", NULL },
  { "row_id=\xff", NULL, NULL, "row_id: this is not UTF-8 text", NULL },
};

START_TEST (cells_change_the_plan)
{
  g_auto (Read) read = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *text = table_with (cases[_i].changes);
  ck_assert_msg (read_begin (&read, text, &error), "%s", error ? error->message : "");
  if (cases[_i].wrong)
    {
      g_autofree char *expected = g_strconcat ("runs.csv:2: ", cases[_i].wrong, NULL);
      ck_assert_msg (g_str_has_prefix (read.wrong->str, expected), "%s: %s", cases[_i].changes,
                     read.wrong->str);
      return;
    }
  ck_assert_str_eq (read.wrong->str, "");
  const PlanRunRow *row = &g_array_index (read.rows, PlanRunRow, 0);
  g_autofree char *plan = plan_print (&row->plan);
  ck_assert_msg (g_strcmp0 (row->skipped, cases[_i].skipped) == 0, "%s: %s", cases[_i].changes,
                 row->skipped);
  ck_assert_msg (!cases[_i].plan || strstr (plan, cases[_i].plan), "%s: %s", cases[_i].changes,
                 plan);
  ck_assert_msg (!cases[_i].plan || g_strcmp0 (row->remarks, cases[_i].remarks) == 0, "%s: %s",
                 cases[_i].changes, row->remarks);
  ck_assert_int_eq (row->is_partial,
                    row->remarks != NULL && strstr (row->remarks, "is not modelled") != NULL);
}
END_TEST

START_TEST (models_of_other_families)
{
  static const struct
  {
    const char *changes, *model;
  } rows[] = {
    { "family=gpt|kv_heads=32|tied=yes|notes=bias=yes",
      "family=gpt2,layers=32,hidden=4096,ffn=14336,heads=32,kv_heads=32,head_dim=128,vocab=128384,"
      "max_seq=8192" },
    { "family=gpt|kv_heads=32|notes=bias=attention", ",tied=off,mlp_bias=off" },
    { "notes=positions=learned", ",positions=learned" },
    { "family=bloom|kv_heads=32|notes=", ",tied=off,positions=alibi" },
    { "family=nemotron|notes=", ",norm=layernorm,norm_bias=on,activation=relu2,gated=off" },
    { "family=qwen3-moe|experts=128|topk=8|expert_ffn=768|shared_expert_ffn=0|first_dense_layers=0",
      "family=qwen3_moe," },
  };
  g_auto (Read) read = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *text = table_with (rows[_i].changes);
  ck_assert (read_begin (&read, text, &error));
  ck_assert_str_eq (read.wrong->str, "");
  g_autofree char *model = plan_model_print (g_array_index (read.rows, PlanRunRow, 0).model);
  ck_assert_msg (strstr (model, rows[_i].model) != NULL, "%s", model);
}
END_TEST

START_TEST (clusters_are_whole_nodes)
{
  static const struct
  {
    const char *changes;
    gint64 nodes, per_node, domain;
    double nic;
  } rows[] = {
    { "gpus=4|notes=", 1, 4, 4, 50e9 },
    { "gpus=64|notes=nic_gbit_per_gpu=200", 8, 8, 8, 25e9 },
    { "gpu=gb200|gpus=64|gpus_per_node=4|notes=nvlink_domain=72", 16, 4, 72, 50e9 },
    { "gpu=v100-32gb|compute=fp16|param_gather=fp16|gpus=8|gpus_per_node=4|notes=", 2, 4, 4, 0 },
  };
  g_auto (Read) read = { 0 };
  const PlanRunRow *row = read_placed (&read, rows[_i].changes);
  ck_assert_int_eq (row->cluster->nodes, rows[_i].nodes);
  ck_assert_int_eq (row->cluster->devices_per_node, rows[_i].per_node);
  ck_assert_int_eq (row->cluster->nvlink_domain, rows[_i].domain);
  if (rows[_i].nic > 0)
    ck_assert_double_eq (row->cluster->nic_bytes_per_s, rows[_i].nic);
}
END_TEST

/* For nanotron's balanced pipelines the stage of the loss is unknown where the public rule would
 * put the loss on a stage by itself. */
START_TEST (times_of_unknown_stages_do_not_count)
{
  static const struct
  {
    const char *changes;
    gboolean counts;
  } rows[] = {
    { "pp=16|notes=pipeline_balance=yes; local_parameters=1.18G", FALSE },
    { "pp=16|notes=pipeline_balance=no; local_parameters=1.18G", TRUE },
    { "pp=16|notes=local_parameters=1.18G", TRUE },
    { "pp=8|notes=pipeline_balance=yes; local_parameters=1.62G", TRUE },
    { "pp=8|time_ok=no|notes=pipeline_balance=yes; local_parameters=1.62G", FALSE },
  };
  g_autofree char *changes
      = g_strconcat ("stack=nanotron|compute=bf16|param_gather=bf16|strategy=optim|"
                     "stack_date=2025-01|gpus=16|kv_heads=32|",
                     rows[_i].changes, NULL);
  g_auto (Read) read = { 0 };
  const PlanRunRow *row = read_placed (&read, changes);
  ck_assert_msg (!row->skipped, "%s", row->skipped);
  ck_assert_int_eq (row->time_ok, rows[_i].counts);
  ck_assert (row->memory_ok);
  ck_assert_int_eq (row->remarks && strstr (row->remarks, "no time counts"), _i == 0);
}
END_TEST

/* EFA is not of InfiniBand's order, and the cluster of nanotron's scan was in two states, which are
 * two states of its software, whatever the month. */
START_TEST (networks_are_as_they_were_then)
{
  static const struct
  {
    const char *changes;
    gint64 latency_ns;
    double gbit;
    const char *stack, *nccl;
  } rows[] = {
    { "notes=nic_gbit_per_gpu=200", 5000, 200, "megatron-fsdp", "2.28" },
    { "notes=nic_gbit_per_gpu=400|source=NVIDIA/Megatron-LM PR #3067 (A3)", 5000, 400,
      "megatron-fsdp", "2.28" },
    { "notes=network=roce", 5000, 400, "megatron-fsdp", "2.28" },
    { "notes=network=efa", 40000, 400, "megatron-fsdp", "2.28" },
#define SCAN "stack=nanotron|compute=bf16|param_gather=bf16|strategy=optim|"
    { SCAN "stack_date=2024-12|notes=network=efa; network_state=fast; nic_gbit_per_gpu=400", 200000,
      328, "nanotron@2024-12-05", "2.21" },
    { SCAN "stack_date=2024-12|notes=network=efa; network_state=slow", 1200000, 400, "nanotron",
      "2.21" },
    { SCAN "stack_date=2025-01|notes=network=efa; network_state=fast; nic_gbit_per_gpu=400", 200000,
      328, "nanotron@2024-12-05", "2.21" },
    { SCAN "stack_date=2025-01|notes=network=efa; network_state=broken", 40000, 400, "nanotron",
      "2.21" },
#undef SCAN
    { "stack=fsdp2|compute=bf16|param_gather=bf16|stack_date=2025-06|notes=", 5000, 400, NULL,
      "2.28" },
  /* Where a table says which version it was made with, that date is used, not its page's, which is
   * later. */
#define PAGE \
  "stack=fsdp2|compute=bf16|param_gather=bf16|stack_date=2026-02|notes=|" \
  "source=pytorch/ao docs/source/workflows/training.md|"
    { PAGE "gpu=b200", 5000, 400, "fsdp2@2025-08-15", "2.28" },
    { PAGE "gpu=h100-80gb", 5000, 400, "fsdp2@2025-02-28", "2.21" },
    { PAGE "gpu=h200-141gb", 5000, 400, "fsdp2@2026-02", "2.28" },
#undef PAGE
  };
  g_auto (Read) read = { 0 };
  const PlanRunRow *row = read_placed (&read, rows[_i].changes);
  ck_assert_int_eq (row->cluster->nic_latency_ns, rows[_i].latency_ns);
  ck_assert_double_eq (row->cluster->nic_bytes_per_s, rows[_i].gbit * 1e9 / 8);
  ck_assert_int_eq (row->cluster->nvls == PLAN_ANSWER_NO,
                    strstr (rows[_i].changes, "PR #3067") != NULL);
  g_autofree char *nccl = plan_field_print (PLAN_NCCL, row->plan.value[PLAN_NCCL]);
  g_autofree char *stack = plan_field_print (PLAN_STACK, row->plan.value[PLAN_STACK]);
  ck_assert_str_eq (nccl, rows[_i].nccl);
  if (rows[_i].stack)
    ck_assert_msg (g_str_has_prefix (stack, rows[_i].stack), "%s", stack);
}
END_TEST

/* Neither a row's own mark nor a version of its page makes it another site. */
START_TEST (sites_are_named_by_sources)
{
  static const struct
  {
    const char *changes, *site;
  } rows[] = {
    { "source=NVIDIA/Megatron-LM PR #3067 (A3)", "NVIDIA-Megatron-LM-PR-3067" },
    { "source=NVIDIA/Megatron-LM PR #3067 (A11)", "NVIDIA-Megatron-LM-PR-3067" },
    { "source=some/repo a/README_8b.md@v25.02", "some-repo-a-README_8b.md" },
    { "source=(A3)", NULL },
  };
  g_auto (Read) read = { 0 };
  const PlanRunRow *row = read_placed (&read, rows[_i].changes);
  ck_assert_pstr_eq (row->cluster->site, rows[_i].site);
}
END_TEST

/* 128 x 8192 tokens at 12032.6 a second on each of 8. */
START_TEST (tokens_stand_for_a_step)
{
  g_auto (Read) read = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *text = table_with ("step_ms=");
  ck_assert (read_begin (&read, text, &error));
  const PlanRunRow *row = &g_array_index (read.rows, PlanRunRow, 0);
  ck_assert_double_eq_tol (row->measured[PLAN_RUN_QUANTITY_TIME], 10893.1, 0.1);
  ck_assert (row->time_ok);
}
END_TEST

/* Each error makes its own row unusable, and no other. */
START_TEST (wrong_rows_cost_no_other)
{
  g_auto (Read) read = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *text
      = g_strdup_printf ("%s\n%s\nshort,row\na\"b\n%s\nother%s\n", header, a2, a2, a2);
  ck_assert (read_begin (&read, text, &error));
  ck_assert_uint_eq (read.rows->len, 2);
  ck_assert_uint_eq (g_array_index (read.rows, PlanRunRow, 1).line, 6);
  ck_assert_str_eq (read.wrong->str,
                    "runs.csv:3: 2 cells instead of 67\n"
                    "runs.csv:4: a quote within a cell that does not begin with one\n"
                    "runs.csv:5: row_id: 'pr3067-a2' is that of line 2 already\n");
}
END_TEST

START_TEST (headers_that_are_none)
{
  static const struct
  {
    const char *text, *message;
  } rows[] = {
    { "", "runs.csv: this is empty; the first line of a table of runs names its columns" },
    { "row_id,grup\n",
      "runs.csv:1: 'grup' is no column of a table of runs: did you mean 'group'?" },
    { "row_id,row_id\n", "runs.csv:1: column row_id is there twice" },
    { "row_id,stack\n", "runs.csv:1: a table of runs needs the column source, which is not here" },
    { "\n\na\"\n", "runs.csv:3: a quote within a cell that does not begin with one" },
  };
  g_auto (Read) read = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert (!read_begin (&read, rows[_i].text, &error));
  ck_assert_str_eq (error->message, rows[_i].message);
}
END_TEST

START_TEST (notes_are_found_by_key)
{
  PlanRunRow row = { .cell = { [PLAN_RUN_NOTES] = (char *)"a=1; ab=2 ;c; d==x; a=3" } };
  static const char *const expected[][2]
      = { { "a", "1" }, { "ab", "2" }, { "b", NULL }, { "c", NULL }, { "d", "=x" } };
  for (guint i = 0; i < G_N_ELEMENTS (expected); i++)
    {
      g_autofree char *value = plan_run_row_note (&row, expected[i][0]);
      ck_assert_msg (g_strcmp0 (value, expected[i][1]) == 0, "%s: %s", expected[i][0], value);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("run-table");
  TCase *tcase = tcase_create ("run-table");
  tcase_add_test (tcase, a_row_is_a_plan);
  tcase_add_loop_test (tcase, cells_change_the_plan, 0, G_N_ELEMENTS (cases));
  tcase_add_loop_test (tcase, models_of_other_families, 0, 6);
  tcase_add_loop_test (tcase, clusters_are_whole_nodes, 0, 4);
  tcase_add_loop_test (tcase, times_of_unknown_stages_do_not_count, 0, 5);
  tcase_add_loop_test (tcase, networks_are_as_they_were_then, 0, 12);
  tcase_add_loop_test (tcase, sites_are_named_by_sources, 0, 4);
  tcase_add_test (tcase, tokens_stand_for_a_step);
  tcase_add_test (tcase, wrong_rows_cost_no_other);
  tcase_add_loop_test (tcase, headers_that_are_none, 0, 5);
  tcase_add_test (tcase, notes_are_found_by_key);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
