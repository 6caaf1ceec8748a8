/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor-parallel and context-parallel runs on the fake device: compared with the CPU's, with each
 * other, and with graphs. */
#include "config.h"

#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Models with every kind of parameter, split or not; of some vocabularies the last rank has less
 * than the others, or only padding. */
static const char *const models[] = {
  "family=llama,layers=2,hidden=16,ffn=24,heads=4,kv_heads=4,head_dim=8,vocab=67,max_seq=16,"
  "nope_every=2,qk_l2_norm=rope,window=6,window_chunks=on,full_every=2",
  "family=qwen3,layers=1,hidden=20,ffn=16,heads=8,kv_heads=4,head_dim=6,vocab=64,max_seq=16,tied="
  "on",
  "family=gemma2,layers=2,hidden=24,ffn=20,heads=4,kv_heads=4,head_dim=8,vocab=90,max_seq=16,"
  "window=5,attn_scalar=7,attn_softcap=2,logit_softcap=10",
  "family=llama,layers=1,hidden=24,ffn=16,heads=4,kv_heads=4,head_dim=6,vocab=50,max_seq=16,"
  "norm=layernorm,norm_bias=on,mlp_bias=on,proj_bias=on,qkv_bias=on,gated=off,activation=gelu",
  "family=gpt2,layers=2,hidden=24,ffn=16,heads=4,head_dim=6,vocab=5,max_seq=20",
  "family=gpt_neox,layers=1,hidden=24,ffn=16,heads=4,head_dim=8,vocab=50,max_seq=16",
  "family=mpt,layers=1,hidden=32,ffn=16,heads=4,kv_heads=4,head_dim=8,vocab=50,max_seq=16",
};

/* How many ranks, and how they split layers. */
static const struct
{
  guint ranks;
  const char *fields;
} splits[] = {
  { 2, "tp=2 sp=off strategy=no_shard" },
  { 2, "tp=2 sp=on strategy=optim" },
  { 4, "tp=2 sp=on strategy=optim_grads_params" },
  { 4, "tp=2 sp=off strategy=optim_grads" },
  { 4, "tp=4 sp=on strategy=no_shard" },
  { 4, "tp=4 sp=on tp_overlap=async strategy=optim" },
};

static const char *const formats[] = {
  "compute=fp32",
  "compute=bf16 main_grads=fp32 hidden_dropout=0.1 attention_dropout=0.2",
  "compute=fp32 ce_fusion=off recompute=full",
  "compute=fp16 loss_chunks=2 hidden_dropout=0.1",
  "compute=bf16 ce_fusion=off recompute=selective recompute_modules=core_attn+mlp",
  "compute=fp32 loss_chunks=2 eod_mask_loss=on per_token_loss=on",
  "compute=bf16 grad_comm=bf16 double_buffer=on mbs=2",
};

/* Each model with each split, in formats that change from case to case. */
#define N_CASES (G_N_ELEMENTS (models) * G_N_ELEMENTS (splits))

static void
case_init_split (Case *c, guint model, guint split, const char *fields)
{
  g_autofree char *all = g_strdup_printf ("%s deterministic=on %s", splits[split].fields, fields);
  case_open (c, models[model], splits[split].ranks);
  case_set_plan (c, all);
}

START_TEST (split_layers_are_near_the_cpus)
{
  const guint model = (guint)_i % G_N_ELEMENTS (models), split = (guint)_i / G_N_ELEMENTS (models);
  const char *format = formats[(model + 3 * split) % G_N_ELEMENTS (formats)];
  g_autofree char *what = g_strdup_printf ("%s %s %s", models[model], splits[split].fields, format);
  Case c;
  case_init_split (&c, model, split, format);
  check_against_cpu (&c, what);
  ck_assert_uint_gt (count_logged ("target_logits"), 0);
  case_clear (&c, what);
}
END_TEST

/* Split sequences with and without split layers, with windows and learned positions. */
static const struct
{
  guint model, ranks;
  const char *fields;
} contexts[] = {
  { 1, 4, "cp=2 tp=2 sp=on strategy=no_shard compute=bf16 mbs=2 gbs=4" },
  { 0, 2, "cp=2 strategy=optim_grads_params compute=fp32 gbs=4" },
  { 2, 4, "cp=4 strategy=optim_grads_params compute=bf16 recompute=full gbs=2" },
  { 4, 4, "cp=2 strategy=optim_grads compute=fp32 loss_chunks=2 gbs=4" },
  { 3, 4, "cp=2 tp=2 sp=on tp_overlap=async strategy=optim_grads_params compute=bf16 gbs=4" },
};

/* Products in eight bits of sequences that are gathered first. */
static const struct
{
  guint ranks;
  const char *fields;
} narrow[] = {
  { 2, "tp=2 sp=on strategy=optim compute=fp8-tensorwise gbs=2" },
  { 4, "tp=2 sp=off strategy=optim_grads_params compute=fp8-tensorwise param_gather=fp8" },
  { 4, "tp=2 sp=on strategy=optim_grads_params compute=fp8-delayed recompute=full" },
  { 4, "tp=4 sp=on strategy=no_shard compute=fp8-delayed hidden_dropout=0.1 mbs=2 gbs=2" },
  { 4, "tp=2 sp=on tp_overlap=async strategy=optim_grads_params compute=fp8-delayed" },
  { 2, "tp=2 sp=on tp_overlap=async strategy=optim compute=fp8-delayed recompute=full gbs=2" },
  { 2, "tp=2 sp=on tp_overlap=async strategy=optim compute=fp8-tensorwise gbs=2" },
};

START_TEST (gathered_sequences_are_quantised_near_the_cpus)
{
  g_autofree char *all
      = g_strconcat ("seq=32 main_grads=fp32 deterministic=on ", narrow[_i].fields, NULL);
  Case c;
  case_open (&c,
             "family=llama,layers=2,hidden=64,ffn=64,heads=4,kv_heads=4,head_dim=16,vocab=64,"
             "max_seq=32",
             narrow[_i].ranks);
  case_set_plan (&c, all);
  check_against_cpu (&c, all);
  case_check_bytes (&c, all);
  case_clear (&c, all);
}
END_TEST

START_TEST (split_sequences_are_near_the_cpus)
{
  g_autofree char *all = g_strconcat (contexts[_i].fields, " seq=16 deterministic=on", NULL);
  Case c;
  case_open (&c, models[contexts[_i].model], contexts[_i].ranks);
  case_set_plan (&c, all);
  check_against_cpu (&c, all);
  case_check_bytes (&c, all);
  case_clear (&c, all);
}
END_TEST

/* Where shards lie, and what is computed again, does not change a bit of what ranks share. */
START_TEST (strategies_agree_bit_for_bit)
{
  static const char *const others[]
      = { "strategy=optim_grads_params", "strategy=optim recompute=full",
          "strategy=optim_grads ce_fusion=off", "strategy=optim_grads_params reduce_algo=a2a" };
  g_autofree char *common
      = g_strdup_printf ("tp=2 sp=%s compute=bf16 main_grads=fp32 grad_comm=fp32 "
                         "gbs=2 deterministic=on strategy=no_shard",
                         _i == 0 ? "off" : "on");
  Case plain;
  case_open (&plain, models[0], 4);
  case_set_plan (&plain, common);
  case_must_run (&plain, common);
  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    {
      Case other;
      case_open (&other, models[0], 4);
      case_set_plan (&other, common);
      case_change (&other, others[i]);
      case_must_run (&other, others[i]);
      assert_equal_losses (&other, &plain, others[i]);
      case_clear (&other, others[i]);
    }
  case_clear (&plain, common);
}
END_TEST

/* Nor does a step that is captured and launched: op by op, captured, launched, op by op. */
START_TEST (a_graph_changes_no_bit)
{
  Case plain, graph;
  case_init_split (&plain, 0, (guint)_i, "compute=bf16");
  case_init_split (&graph, 0, (guint)_i, "compute=bf16 cuda_graph=on");
  plain.job.steps = graph.job.steps = 4;
  case_must_run (&plain, "op by op");
  case_must_run (&graph, "by graphs");
  for (guint r = 0; r < plain.ranks; r++)
    {
      const ExecResult *x = &graph.results[r], *y = &plain.results[r];
      ck_assert_mem_eq (x->losses, y->losses, 4 * sizeof (double));
      ck_assert_mem_eq (x->grad_norms, y->grad_norms, 4 * sizeof (double));
      ck_assert_mem_eq (x->main_params->data, y->main_params->data, y->main_params->len);
    }
  case_clear (&plain, "op by op");
  case_clear (&graph, "by graphs");
}
END_TEST

/* --- planted mistakes ----------------------------------------------------------------------- */

static ExecDeviceOps planted_device;
static ExecKernels planted_kernels;
static ExecCommOps planted_comm;
static const ExecCommOps *real_comm;
static __thread gboolean
    sends; /* what this rank issued last on its group's stream is an exchange */
static gboolean plants;
static gint missing; /* waits that were left out */

static gboolean
exchange_and_note (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                   guint distance, void *stream, GError **error)
{
  sends = TRUE;
  return real_comm->exchange (self, out, in, count, dtype, distance, stream, error);
}

/* Leaves the first wait of the compute stream behind an exchange out. */
static gboolean
wait_unless_planted (ExecDevice *self, guint32 event, PlanStream stream, GError **error)
{
  const gboolean is_behind = sends && stream == PLAN_STREAM_COMPUTE;
  sends = sends && !is_behind;
  if (plants && is_behind && g_atomic_int_add (&missing, 1) == 0)
    return TRUE;
  return exec_device_cuda.wait (self, event, stream, error);
}

static ExecComm *
group_and_plant (ExecComm *self, guint size, guint stride, GError **error)
{
  ExecComm *group = real_comm->group (self, size, stride, error);
  if (group)
    group->ops = &planted_comm;
  return group;
}

static gboolean
open_and_plant (guint ranks, ExecComm **out_comms, GError **error)
{
  if (!exec_comm_cuda_open (ranks, out_comms, error))
    return FALSE;
  real_comm = out_comms[0]->ops;
  planted_comm = *real_comm;
  planted_comm.exchange = exchange_and_note;
  planted_comm.group = group_and_plant;
  for (guint i = 0; i < ranks; i++)
    out_comms[i]->ops = &planted_comm;
  return TRUE;
}

/* A product of rows that came from another rank waits for them: one wait less is found. */
START_TEST (a_missing_wait_for_rows_is_found)
{
  g_autoptr (GError) error = NULL;
  Case c;
  case_init_split (&c, 0, 5, "compute=fp32");
  planted_device = exec_device_cuda;
  planted_device.wait = wait_unless_planted;
  planted_device.open_comms = open_and_plant;
  planted_kernels = exec_kernels_cuda;
  planted_kernels.device = &planted_device;
  c.job.kernels = &planted_kernels;
  plants = _i == 1;
  missing = 0;
  ck_assert_msg (case_run (&c, &error) || plants, "%s", error ? error->message : "");
  ck_assert_int_eq (missing > 0, plants);
  ck_assert_msg ((*fake_cuda_error () != '\0') == plants, "%s", fake_cuda_error ());
  case_free (&c);
}
END_TEST

START_TEST (bytes_taken_equal_bytes_predicted)
{
  Case c;
  case_init_split (&c, (guint)_i, (guint)_i, formats[_i]);
  case_must_run (&c, splits[_i].fields);
  case_check_bytes (&c, splits[_i].fields);
  case_clear (&c, splits[_i].fields);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-split");
  TCase *tcase = tcase_create ("split");
  tcase_set_timeout (tcase, 120);
  test_add_run_share (tcase, split_layers_are_near_the_cpus, N_CASES);
  test_add_run_share (tcase, split_sequences_are_near_the_cpus, G_N_ELEMENTS (contexts));
  tcase_add_loop_test (tcase, gathered_sequences_are_quantised_near_the_cpus, 0,
                       G_N_ELEMENTS (narrow));
  tcase_add_loop_test (tcase, strategies_agree_bit_for_bit, 0, 2);
  tcase_add_loop_test (tcase, a_graph_changes_no_bit, 1, 6);
  tcase_add_loop_test (tcase, a_missing_wait_for_rows_is_found, 0, 2);
  test_add_runs (tcase, bytes_taken_equal_bytes_predicted, G_N_ELEMENTS (splits));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
