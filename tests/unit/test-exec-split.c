/* SPDX-License-Identifier: Apache-2.0 */
/* Compares runs with tensor parallelism with runs without: only the order of sums differs. */
#include "config.h"

#include "exec/walk/exec.h"
#include "planner/base/error.h"
#include "tests/reference/evaluate.h"
#include "tests/share.h"
#include "tests/unit/test-exec-split-case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define LLAMA \
  "family=llama,layers=2,hidden=16,ffn=8,heads=2,kv_heads=2,head_dim=8,vocab=32,max_seq=16"
#define GPT2 "family=gpt2,layers=3,hidden=24,ffn=16,heads=4,head_dim=6,vocab=50,max_seq=20"
#define STEPS 14

/* Models with every kind of parameter, split or not. */
static const char *const models[] = {
  "family=llama,layers=2,hidden=32,ffn=24,heads=4,kv_heads=4,head_dim=8,vocab=67,max_seq=16",
  "family=qwen3,layers=2,hidden=20,ffn=24,heads=8,kv_heads=4,head_dim=6,vocab=64,max_seq=16,tied="
  "on",
  "family=gemma2,layers=3,hidden=24,ffn=20,heads=4,kv_heads=4,head_dim=8,vocab=90,max_seq=16,"
  "window=5,attn_scalar=7,attn_softcap=20,logit_softcap=10",
  "family=llama,layers=2,hidden=24,ffn=16,heads=4,kv_heads=4,head_dim=6,vocab=50,max_seq=16,"
  "norm=layernorm,norm_bias=on,mlp_bias=on,proj_bias=on,qkv_bias=on,gated=off,activation=gelu",
  "family=gpt2,layers=2,hidden=24,ffn=16,heads=4,head_dim=6,vocab=50,max_seq=20",
  "family=bloom,layers=2,hidden=24,ffn=16,heads=12,head_dim=4,vocab=50,max_seq=16",
  "family=gpt_neox,layers=2,hidden=24,ffn=16,heads=4,head_dim=8,vocab=50,max_seq=16",
};

/* Models with plain experts; with shared experts that have a gate, beside a router with biases,
 * behind a dense layer; with biases and sinks; with scores applied to the experts' inputs, beside
 * layers without positions. */
static const char *const expert_models[]
    = { "family=mixtral,layers=4,hidden=16,ffn=8,heads=4,kv_heads=4,head_dim=6,vocab=32,max_seq=16,"
        "experts=8,topk=2",
        "family=qwen3_moe,layers=4,hidden=10,ffn=8,heads=4,kv_heads=4,head_dim=6,vocab=23,"
        "max_seq=16,experts=4,topk=3,expert_ffn=6,shared_ffn=8,shared_gate=on,dense_layers=1,"
        "router_score=sigmoid,router_scale=2.5,router_bias=on",
        "family=gpt_oss,layers=4,hidden=10,ffn=7,heads=8,kv_heads=4,head_dim=6,vocab=23,max_seq=16,"
        "experts=4,topk=3,expert_ffn=6,window=5,glu_limit=0.004",
        "family=llama4_text,layers=4,hidden=10,ffn=8,heads=4,kv_heads=4,head_dim=6,vocab=23,"
        "max_seq=16,experts=4,expert_ffn=6,shared_ffn=8,moe_every=2,window=4,full_every=3,"
        "nope_every=3" };

/* Latent attention: with a latent vector of queries, beside experts and a dense layer; without one,
 * in dense layers. */
static const char *const latent_models[] = {
  "family=deepseek_v3,layers=4,hidden=10,ffn=8,heads=4,q_lora=6,kv_lora=5,nope_dim=4,rope_dim="
  "2,v_dim=3,vocab=23,max_seq=16,experts=4,topk=3,expert_ffn=6,shared_ffn=8,dense_layers=1,"
  "router_score=sigmoid,router_scale=2.5,router_bias=on,router_groups=2,router_group_topk=2,"
  "mtp=0",
  "family=deepseek_v2,layers=4,hidden=12,ffn=8,heads=8,q_lora=0,kv_lora=7,nope_dim=3,rope_dim="
  "6,v_dim=5,vocab=32,max_seq=16,experts=4,topk=2,expert_ffn=6,shared_ffn=4"
};

static void
case_init (Case *c, const char *model, const char *words, gint64 steps)
{
  case_init_on (c, RANKS, model, words, steps);
}

/* Losses and norms, which are the same on all ranks. */
typedef struct
{
  double loss[STEPS], norm[STEPS];
} Seen;

static Seen
run (const Case *c)
{
  ExecResult results[RANKS] = { { 0 } };
  g_autoptr (GError) error = NULL;
  const gsize bytes = (gsize)c->job.steps * sizeof (double);
  Seen seen = { { 0 }, { 0 } };
  ck_assert_msg (exec_run_threads (&c->job, RANKS, FALSE, NULL, NULL, results, &error), "%s",
                 error ? error->message : "");
  memcpy (seen.loss, results[0].losses, bytes);
  memcpy (seen.norm, results[0].grad_norms, bytes);
  for (guint r = 0; r < RANKS; r++)
    {
      ck_assert_mem_eq (results[r].losses, seen.loss, bytes);
      ck_assert_mem_eq (results[r].grad_norms, seen.norm, bytes);
      exec_result_clear (&results[r]);
    }
  return seen;
}

static Seen
expect (const Case *c)
{
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) error = NULL;
  Seen seen = { { 0 }, { 0 } };
  ck_assert_msg (exec_evaluate (&c->job, RANKS, &result, &error), "%s",
                 error ? error->message : "");
  memcpy (seen.loss, result.losses, (gsize)c->job.steps * sizeof (double));
  memcpy (seen.norm, result.grad_norms, (gsize)c->job.steps * sizeof (double));
  return seen;
}

static void
assert_close (const Seen *found, const Seen *expected, const char *what, gint64 steps)
{
  for (gint64 i = 0; i < steps; i++)
    {
      ck_assert_msg (fabs (found->loss[i] - expected->loss[i]) <= 1e-5 * expected->loss[i],
                     "%s, step %d: the loss is %.9g, not %.9g", what, (int)i, found->loss[i],
                     expected->loss[i]);
      ck_assert_msg (fabs (found->norm[i] - expected->norm[i]) <= 1e-3 * expected->norm[i],
                     "%s, step %d: the norm is %.9g, not %.9g", what, (int)i, found->norm[i],
                     expected->norm[i]);
    }
}

/* Runs some steps from the same weights, on the same text. */
START_TEST (splitting_layers_changes_little)
{
  static const char *const split[] = { "tp=2 sp=off", "tp=2 sp=on", "tp=4 sp=off", "tp=4 sp=on" };
  g_auto (Case) whole = { 0 };
  case_init (&whole, models[_i], "strategy=optim_grads", STEPS);
  const Seen expected = expect (&whole);
  ck_assert (expected.loss[STEPS - 1] < expected.loss[0]);
  for (guint i = 0; i < G_N_ELEMENTS (split); i++)
    {
      g_autofree char *words = g_strconcat ("strategy=optim_grads_params ", split[i], NULL);
      g_auto (Case) c = { 0 };
      case_init (&c, models[_i], words, STEPS);
      const Seen found = run (&c);
      assert_close (&found, &expected, split[i], STEPS);
    }
}
END_TEST

static gboolean
shares_table (const char *model)
{
  return strstr (model, "tied=on") || strstr (model, "gpt2") || strstr (model, "bloom")
         || strstr (model, "gemma2");
}

/* Two ranks with all layers, and two stages of two ranks each. Where a matrix is on both stages
 * (tied embeddings), its gradient is a sum of other parts. */
START_TEST (stages_compute_what_one_does)
{
  static const char *const words[] = { "strategy=no_shard", "strategy=optim",
                                       "strategy=optim_grads", "strategy=optim_grads_params" };
  const guint n = shares_table (models[_i]) ? 0 : G_N_ELEMENTS (words);
  for (guint i = 0; i < MAX (n, 2); i++)
    {
      g_autofree char *staged = g_strconcat ("pp=2 pp_first_layers=1 ", words[i], NULL);
      g_autoptr (GError) error = NULL;
      g_auto (ExecResult) expected = { 0 };
      g_auto (Case) c = { 0 }, whole = { 0 };
      case_init (&c, models[_i], staged, STEPS);
      const Seen found = run (&c);
      case_init_on (&whole, 2, models[_i], words[i], STEPS);
      ck_assert_msg (exec_evaluate (&whole.job, 2, &expected, &error), "%s",
                     error ? error->message : "");
      for (gint64 step = 0; step < STEPS; step++)
        if (n > 0)
          {
            ck_assert_double_eq (found.loss[step], expected.losses[step]);
            ck_assert_double_eq (found.norm[step], expected.grad_norms[step]);
          }
        else
          ck_assert_double_eq_tol (found.loss[step], expected.losses[step], 1e-5);
    }
}
END_TEST

START_TEST (stages_may_split_layers)
{
  static const char *const splits[]
      = { "tp=2 sp=on pp=2 pp_first_layers=1 strategy=optim",
          "tp=2 sp=off pp=2 pp_first_layers=1 strategy=no_shard",
          "tp=2 sp=on tp_overlap=async pp=2 pp_first_layers=1 strategy=optim compute=bf16",
          "tp=2 sp=on pp=2 pp_first_layers=1 strategy=optim_grads_params" };
  for (guint i = 0; i < G_N_ELEMENTS (splits) - shares_table (models[_i]); i++)
    for (guint ranks = RANKS; ranks <= 2 * RANKS; ranks += RANKS)
      compare_split (models[_i], ranks, splits[i]);
}
END_TEST

/* Products in pieces beside the exchange of sequences: in every format, beside stages and split
 * sequences, and where layers are computed again, wholly or in part. */
START_TEST (products_may_be_in_pieces)
{
  static const char *const splits[] = {
    "tp=2 strategy=optim_grads_params",
    "tp=4 strategy=no_shard compute=bf16 main_grads=fp32",
    "tp=4 strategy=optim compute=fp16 recompute=full",
    "tp=2 cp=2 strategy=optim_grads_params compute=bf16 main_grads=fp32",
    "tp=2 strategy=optim recompute=selective recompute_modules=core_attn+mlp",
    "tp=2 dp_outer=2 strategy=optim_grads recompute=selective recompute_modules=core_attn",
    "tp=4 strategy=optim_grads loss_chunks=2 hidden_dropout=0.1 compute=bf16",
  };
  for (guint i = 0; i < G_N_ELEMENTS (splits); i++)
    {
      g_autofree char *words = g_strconcat (splits[i], " sp=on tp_overlap=async", NULL);
      for (guint ranks = RANKS; ranks <= 2 * RANKS; ranks += RANKS)
        compare_split (models[_i], ranks, words);
    }
}
END_TEST

/* Pieces are summed in the order of ranks, as whole products are: what a library makes of other
 * numbers of rows is all that may differ. Loops in plain C make the same of every row. */
START_TEST (pieces_change_little)
{
  static const char *const words[]
      = { "tp=2 sp=on strategy=optim", "tp=4 sp=on strategy=no_shard" };
  const gboolean is_plain = strcmp (exec_gemm_name (), "plain C") == 0;
  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    {
      g_autofree char *pieces = g_strconcat (words[i], " tp_overlap=async", NULL);
      g_auto (Case) whole = { 0 }, cut = { 0 };
      case_init (&whole, models[_i], words[i], STEPS);
      case_init (&cut, models[_i], pieces, STEPS);
      const Seen expected = run (&whole), found = run (&cut);
      assert_close (&found, &expected, pieces, STEPS);
      ck_assert (!is_plain || memcmp (&found, &expected, sizeof found) == 0);
    }
}
END_TEST

static ExecCommOps planted;
static const ExecCommOps *real;
static gboolean skips; /* rank 1 of a group does not exchange, else with the wrong rank */
static gint mistakes;  /* how many it will still make */

static gboolean
exchange_wrongly (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                  guint distance, void *stream, GError **error)
{
  const gboolean is_wrong = self->rank == 1 && g_atomic_int_add (&mistakes, -1) > 0;
  if (is_wrong && skips)
    return TRUE;
  return real->exchange (self, out, in, count, dtype, distance + is_wrong, stream, error);
}

static ExecComm *
plant (ExecComm *comm, GError **error)
{
  comm->ops = &planted;
  return comm;
}

static ExecComm *
group_and_plant (ExecComm *self, guint size, guint stride, GError **error)
{
  ExecComm *group = real->group (self, size, stride, error);
  return group ? plant (group, error) : NULL;
}

/* Runs with one mistake, or none. */
static gboolean
run_planted (Case *c, gint n_mistakes, ExecResult *results, GError **error)
{
  ExecComm *comms[RANKS];
  ck_assert (exec_comm_threads_open (RANKS, comms, error));
  real = comms[0]->ops;
  planted = *real;
  planted.exchange = exchange_wrongly;
  planted.group = group_and_plant;
  for (guint r = 0; r < RANKS; r++)
    comms[r]->ops->close (comms[r]);
  mistakes = n_mistakes;
  c->job.join = plant;
  return exec_run_threads (&c->job, RANKS, FALSE, NULL, NULL, results, error);
}

/* An exchange that a rank leaves out ends the run; one with another rank changes its losses. */
START_TEST (a_wrong_exchange_is_found)
{
  ExecResult results[2][RANKS] = { { { 0 } } };
  g_auto (ExecResult) expected = { 0 };
  g_autoptr (GError) error = NULL;
  g_auto (Case) c = { 0 };
  case_init (&c, models[0],
             _i % 2 == 0 ? "tp=4 sp=on tp_overlap=async strategy=no_shard"
                         : "tp=2 sp=on tp_overlap=async strategy=optim",
             2);
  ck_assert (exec_evaluate (&c.job, RANKS, &expected, &error));
  skips = FALSE;
  for (gint n = 0; n < 2; n++)
    {
      ck_assert_msg (run_planted (&c, n, results[n], &error), "%s", error ? error->message : "");
      ck_assert_int_eq (memcmp (results[n][0].losses, expected.losses, 2 * sizeof (double)) == 0,
                        n == 0);
      for (guint r = 0; r < RANKS; r++)
        exec_result_clear (&results[n][r]);
    }
  skips = TRUE;
  ck_assert (!run_planted (&c, 1, results[0], &error));
  ck_assert_msg (strstr (error->message, "collective"), "%s", error->message);
}
END_TEST

/* Interleaved stages of two or three virtual stages each; in the last ten cases with sharded
 * gradients, which are reduced in every micro batch, also of experts. */
START_TEST (stages_may_be_interleaved)
{
  static const char *const splits[]
      = { "pp=2 vpp=2 strategy=optim gbs=16",
          "pp=2 vpp=2 strategy=no_shard mbs=1",
          "pp=2 vpp=3 pp_group=4 strategy=optim mbs=1",
          "pp=4 vpp=2 strategy=optim mbs=1 gbs=16",
          "tp=2 pp=2 vpp=2 strategy=optim",
          "pp=2 vpp=3 pp_group=5 strategy=no_shard mbs=1 gbs=28",
          "pp=2 vpp=2 strategy=optim_grads gbs=16",
          "pp=2 vpp=3 pp_group=4 strategy=optim_grads_params mbs=1 gbs=32",
          "pp=4 vpp=2 strategy=optim_grads_params mbs=1 gbs=16 recompute=full",
          "tp=2 sp=on pp=2 vpp=2 strategy=optim_grads_params comm_unit=1000",
          "tp=2 sp=on pp=4 vpp=2 strategy=optim_grads mbs=1" };
  static const char *const deep[] = {
    "family=llama,layers=24,hidden=16,ffn=8,heads=2,kv_heads=2,head_dim=8,vocab=32,max_seq=16",
    "family=qwen3,layers=24,hidden=20,ffn=24,heads=4,kv_heads=2,head_dim=6,vocab=64,max_seq=16,"
    "tied=on,window=5,window_every=2",
    "family=mixtral,layers=24,hidden=16,ffn=8,heads=2,vocab=32,max_seq=16,experts=4,topk=2",
  };
  compare_split (deep[_i < 12 ? _i % 2 : _i % 2 * 2],
                 _i / 2 % 5 == 1 || _i / 2 == 2 ? RANKS : 2 * RANKS, splits[_i / 2]);
}
END_TEST

/* Moments in eight bits, whose scales are those of the parts of parameters that ranks of a stage
 * have. */
START_TEST (stages_may_have_moments_in_eight_bits)
{
  static const char *const splits[]
      = { "pp=2 strategy=optim exp_avg=fp8 exp_avg_sq=fp8",
          "pp=4 strategy=optim_grads_params exp_avg=fp8",
          "tp=2 sp=on pp=2 strategy=optim_grads exp_avg=bf16 exp_avg_sq=fp8",
          "pp=2 vpp=2 strategy=optim mbs=1 exp_avg=fp8 exp_avg_sq=fp8 main_params=bf16" };
  static const char *const staged[] = {
    "family=llama,layers=4,hidden=20,ffn=12,heads=4,kv_heads=2,head_dim=6,vocab=32,max_seq=16",
    "family=gpt_neox,layers=4,hidden=16,ffn=24,heads=4,head_dim=8,vocab=35,max_seq=16"
  };
  g_autofree char *words = g_strconcat (splits[_i / 2], " compute=bf16 precision_aware=on", NULL);
  compare_split (staged[_i % 2], 2 * RANKS, words);
}
END_TEST

/* Where experts are on several ranks, and a stage begins with a layer without them. */
START_TEST (experts_may_have_moments_in_eight_bits)
{
  static const char *const splits[] = { "ep=2 strategy=optim", "ep=2 strategy=optim_grads_params",
                                        "ep=2 pp=2 strategy=optim", "ep=4 strategy=no_shard" };
  g_autofree char *words = g_strconcat (splits[_i], " moe_imbalance=4 mbs=1 compute=bf16 ",
                                        "precision_aware=on exp_avg=fp8 exp_avg_sq=fp8", NULL);
  compare_split ("family=qwen3_moe,layers=4,hidden=10,ffn=7,heads=3,kv_heads=1,head_dim=6,vocab=23,"
                 "max_seq=16,experts=4,topk=3,expert_ffn=3,shared_ffn=3,dense_layers=1,"
                 "router_score=sigmoid,router_scale=2.5",
                 2 * RANKS, words);
}
END_TEST

/* Both stages of a tied embedding have the same parts of it where all ranks have all of it. */
START_TEST (tied_stages_may_have_moments_in_eight_bits)
{
  compare_split (
      GPT2, RANKS,
      "pp=2 pp_first_layers=1 strategy=no_shard compute=bf16 precision_aware=on exp_avg=fp8 "
      "exp_avg_sq=fp8");
}
END_TEST

/* Every stage knows which tokens share a document: of all micro batches that are under way, with
 * rotary and learned positions, of latent attention, and on stages that load nothing else. */
START_TEST (stages_may_have_documents)
{
  static const char *const splits[]
      = { "pp=2 strategy=optim doc_tokens=5", "pp=4 strategy=no_shard doc_tokens=3 mbs=1 gbs=16",
          "pp=2 vpp=2 strategy=optim doc_tokens=7 mbs=1 gbs=16 hidden_dropout=0.1",
          "tp=2 sp=on pp=2 strategy=optim_grads_params doc_tokens=4 recompute=full",
          "pp=4 strategy=optim mbs=1 pp_schedule=afab doc_tokens=20 compute=bf16" };
  static const char *const staged[] = {
    "family=llama,layers=4,hidden=20,ffn=12,heads=4,kv_heads=2,head_dim=6,vocab=32,max_seq=16,"
    "window=6,window_every=2",
    "family=gpt2,tied=off,layers=4,hidden=24,ffn=16,heads=4,head_dim=6,vocab=50,max_seq=20",
    "family=deepseek_v2,layers=4,hidden=12,ffn=8,heads=8,q_lora=0,kv_lora=7,nope_dim=3,"
    "rope_dim=6,v_dim=5,vocab=32,max_seq=16,experts=4,topk=2,expert_ffn=3,shared_ffn=4"
  };
  compare_split (staged[_i % 3], 2 * RANKS, splits[_i / 3]);
}
END_TEST

START_TEST (stages_may_split_experts)
{
  static const char *const splits[]
      = { "ep=2 pp=2 strategy=optim", "pp=2 strategy=no_shard",
          "ep=2 pp=2 strategy=optim_grads_params", "ep=2 pp=4 strategy=optim_grads",
          "ep=2 pp=2 strategy=optim mbs=1 pp_schedule=afab" };
  static const char *const experts[]
      = { "family=mixtral,layers=4,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,"
          "max_seq=16,experts=6,topk=2",
          "family=qwen3_moe,layers=4,hidden=10,ffn=7,heads=3,kv_heads=1,head_dim=6,vocab=23,"
          "max_seq=16,experts=4,topk=3,expert_ffn=3,shared_ffn=3,dense_layers=1,"
          "router_score=sigmoid,router_scale=2.5,router_bias=on",
          "family=gpt_oss,layers=4,hidden=10,ffn=7,heads=3,kv_heads=1,head_dim=6,vocab=23,"
          "max_seq=16,experts=4,topk=3,expert_ffn=3,window=5,glu_limit=0.004",
          "family=llama4_text,layers=4,hidden=10,ffn=7,heads=3,kv_heads=1,head_dim=6,vocab=23,"
          "max_seq=16,experts=4,expert_ffn=3,shared_ffn=3,moe_every=2,window=5,full_every=3,"
          "nope_every=3" };
  g_autofree char *words = g_strconcat (splits[_i / 4], " moe_imbalance=2", NULL);
  compare_split (experts[_i % 4], 2 * RANKS, words);
}
END_TEST

/* Ranks that split all other layers have whole experts, which may be shared with ranks beyond their
 * own group. */
START_TEST (experts_may_be_beside_split_layers)
{
  static const char *const splits[] = { "tp=2 ep=1 strategy=no_shard",
                                        "tp=2 ep=2 strategy=optim",
                                        "tp=2 ep=4 strategy=no_shard",
                                        "tp=2 ep=4 strategy=optim_grads_params",
                                        "tp=4 ep=2 strategy=optim_grads_params",
                                        "tp=4 ep=1 strategy=optim_grads",
                                        "tp=2 pp=2 ep=2 strategy=optim_grads_params",
                                        "tp=2 cp=2 ep=4 strategy=optim",
                                        "tp=2 ep=4 strategy=optim_grads moe_capacity=0.7 "
                                        "moe_pad_to_capacity=on moe_drop=position",
                                        "tp=2 ep=1 strategy=optim_grads_params moe_capacity=0.6 "
                                        "moe_pad_to_capacity=on recompute=full" };
  g_autofree char *words = g_strconcat (splits[_i / 4], " sp=on moe_imbalance=4", NULL);
  for (guint ranks = RANKS; ranks <= 2 * RANKS; ranks += RANKS)
    compare_split (expert_models[_i % 4], ranks, words);
}
END_TEST

/* Ranks may split experts, whether or not they split other layers. */
START_TEST (experts_may_be_split)
{
  static const char *const splits[]
      = { "etp=2 strategy=optim",
          "ep=2 etp=2 strategy=optim_grads_params",
          "tp=2 sp=on etp=2 strategy=optim",
          "tp=2 sp=on ep=2 etp=2 strategy=optim_grads_params compute=bf16 main_grads=fp32",
          "tp=4 sp=on ep=2 etp=2 strategy=no_shard per_token_loss=off",
          "cp=2 etp=2 strategy=optim_grads compute=bf16 recompute=full",
          "tp=2 sp=on pp=2 ep=1 etp=2 strategy=optim_grads_params",
          "ep=2 etp=2 dp_outer=1 strategy=optim router_dtype=bf16 compute=bf16",
          "tp=2 sp=on ep=2 etp=2 strategy=optim_grads moe_capacity=0.7 moe_pad_to_capacity=on",
          "ep=1 etp=2 strategy=optim_grads_params compute=bf16 grad_accum_fusion=off recompute="
          "selective recompute_modules=moe",
          "tp=4 sp=on strategy=optim reduce_algo=a2a" };
  g_autofree char *words = g_strconcat (splits[_i / 4], " mbs=1 moe_imbalance=4", NULL);
  for (guint ranks = RANKS; ranks <= 2 * RANKS; ranks += RANKS)
    compare_split (expert_models[_i % 4], ranks, words);
}
END_TEST

/* The loss that balances experts is of whole sequences, whichever ranks have parts of them. */
START_TEST (balance_is_of_whole_sequences)
{
  static const char *const splits[] = { "tp=4 sp=on strategy=no_shard", "cp=4 strategy=optim",
                                        "tp=2 sp=on cp=2 ep=2 strategy=optim_grads_params",
                                        "tp=4 sp=on ep=2 etp=2 strategy=optim" };
  g_autofree char *words = g_strconcat (splits[_i / 3], " moe_aux_loss=2 moe_imbalance=4", NULL);
  g_auto (ExecResult) expected = { 0 };
  g_autoptr (GError) error = NULL;
  g_auto (Case) whole = { 0 }, split = { 0 };
  Seen alone = { { 0 }, { 0 } };
  case_init_on (&whole, 1, expert_models[_i % 3], "moe_aux_loss=2", 4);
  case_init (&split, expert_models[_i % 3], words, 4);
  ck_assert_msg (exec_evaluate (&whole.job, 1, &expected, &error), "%s",
                 error ? error->message : "");
  memcpy (alone.loss, expected.losses, 4 * sizeof (double));
  memcpy (alone.norm, expected.grad_norms, 4 * sizeof (double));
  const Seen found = run (&split);
  assert_close (&found, &alone, words, 4);
}
END_TEST

/* Whether a step has a buffer, an op or a sum for tokens that ranks count together. */
static gboolean
counts_together (const PlanCase *of)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_lower (of, 0, &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autofree char *text = plan_schedule_print (schedule);
  return strstr (text, "count_routes") || strstr (text, "route.counts");
}

/* Ranks count tokens together for that loss alone: without it nothing is exchanged. */
START_TEST (nothing_is_counted_without_the_loss)
{
  static const char *const splits[] = { "tp=2 sp=on strategy=optim moe_imbalance=4 ",
                                        "cp=2 ep=2 strategy=optim_grads_params moe_imbalance=4 ",
                                        "ep=2 strategy=optim moe_imbalance=4 " };
  for (guint i = 0; i < G_N_ELEMENTS (splits); i++)
    {
      g_autofree char *none = g_strconcat (splits[i], "moe_aux_loss=none", NULL);
      g_auto (Case) with = { 0 }, without = { 0 };
      case_init (&with, expert_models[0], splits[i], 1);
      case_init (&without, expert_models[0], none, 1);
      ck_assert_int_eq (counts_together (with.of), i < 2);
      ck_assert (!counts_together (without.of));
      compare_split (expert_models[0], RANKS, none);
    }
}
END_TEST

/* Ranks that split heads compute the latent vectors of their own tokens only. */
START_TEST (latent_attention_may_be_split)
{
  static const char *const splits[]
      = { "tp=2 ep=1 strategy=no_shard",
          "tp=4 ep=2 strategy=optim",
          "tp=2 ep=4 strategy=optim_grads_params",
          "tp=2 ep=1 dp_outer=2 strategy=optim_grads",
          "tp=2 pp=2 ep=2 strategy=optim_grads_params",
          "tp=2 ep=2 strategy=optim_grads recompute=selective recompute_modules=mla_up_proj",
          "tp=4 ep=1 strategy=optim_grads_params recompute=full",
          "tp=2 ep=2 strategy=optim compute=bf16 main_grads=fp32 per_token_loss=off "
          "attention_dropout=0.2" };
  g_autofree char *words = g_strconcat (splits[_i / 2], " sp=on moe_imbalance=4", NULL);
  for (guint ranks = RANKS; ranks <= 2 * RANKS; ranks += RANKS)
    compare_split (latent_models[_i % 2], ranks, words);
}
END_TEST

/* Gradients of experts that lie on one rank alone are not reduced, but divided as all others. */
START_TEST (lone_experts_are_scaled_as_the_rest)
{
  static const char *const splits[] = { "ep=4 strategy=optim_grads_params",
                                        "ep=2 dp_outer=2 strategy=optim",
                                        "tp=2 ep=4 strategy=optim_grads moe_capacity=0.7",
                                        "ep=2 pp=2 strategy=optim",
                                        "tp=2 ep=1 dp_outer=2 strategy=optim_grads",
                                        "ep=4 strategy=no_shard" };
  g_autofree char *words = g_strconcat (
      splits[_i / 2], " per_token_loss=off grad_comm=bf16 main_grads=fp32 moe_imbalance=4", NULL);
  compare_split (expert_models[_i % 2], RANKS, words);
}
END_TEST

static void
remove_folder (const char *folder)
{
  g_autofree char *command = g_strdup_printf ("rm -r '%s'", folder);
  ck_assert_int_eq (system (command), 0);
}

/* Runs some more steps from a checkpoint, or from none, and saves another one. The evaluator starts
 * from the same checkpoint, which it reads by its own parts; a run that continues with the same
 * split ends as without a stop. */
static void
run_from_checkpoint (const char *model, const char *words, const char *from, const char *to,
                     gint64 first, const Seen *unbroken)
{
  g_autoptr (GError) error = NULL;
  g_auto (Case) c = { 0 };
  g_autoptr (ExecCheckpoint) checkpoint = NULL;
  g_autofree char *all = g_strconcat (words, " moe_aux_loss=none", NULL);
  case_init (&c, model, all, 2);
  if (from)
    {
      checkpoint = exec_checkpoint_open (from, c.model, &error);
      ck_assert_msg (checkpoint != NULL, "%s", error ? error->message : "");
      c.job.resume = checkpoint;
      c.job.first_step = exec_checkpoint_step (checkpoint);
      c.job.first_token = exec_checkpoint_tokens (checkpoint);
    }
  ck_assert_int_eq (c.job.first_step, first);
  const Seen expected = expect (&c);
  c.job.save = to;
  const Seen found = run (&c);
  ck_assert_mem_eq (&found, &expected, sizeof found);
  const Seen *at = unbroken;
  Seen rest = *at;
  memmove (rest.loss, rest.loss + first, (gsize)(STEPS - first) * sizeof *rest.loss);
  memmove (rest.norm, rest.norm + first, (gsize)(STEPS - first) * sizeof *rest.norm);
  assert_close (&found, &rest, words, 2);
}

/* Continues from one checkpoint to the next, each time with another split; without an auxiliary
 * loss, which depends on the tokens of each rank. */
static void
run_through_splits (const char *model, const char *const *splits, guint n)
{
  g_autofree char *folder = g_dir_make_tmp ("test-exec-split-XXXXXX", NULL);
  g_auto (Case) whole = { 0 };
  g_autofree char *from = NULL;
  case_init (&whole, model, "strategy=optim moe_aux_loss=none", STEPS);
  const Seen unbroken = expect (&whole);
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *to = g_strdup_printf ("%s/%u", folder, i);
      run_from_checkpoint (model, splits[i], from, to, 2 * i, &unbroken);
      g_free (from);
      from = g_steal_pointer (&to);
    }
  remove_folder (folder);
}

/* A checkpoint does not depend on which ranks had its parameters. */
START_TEST (checkpoints_carry_over_between_splits)
{
  static const char *const splits[] = { "tp=2 sp=on strategy=optim_grads_params",
                                        "tp=1 strategy=optim",
                                        "tp=4 sp=off strategy=no_shard",
                                        "pp=2 pp_first_layers=1 strategy=optim",
                                        "tp=2 sp=on pp=2 pp_first_layers=1 strategy=no_shard",
                                        "tp=2 sp=off strategy=optim_grads dp_outer=2",
                                        "tp=4 sp=on strategy=no_shard" };
  run_through_splits (models[_i], splits, G_N_ELEMENTS (splits));
}
END_TEST

START_TEST (checkpoints_of_experts_carry_over_between_splits)
{
  static const char *const splits[] = { "moe_imbalance=4 tp=2 sp=on ep=4 strategy=no_shard",
                                        "moe_imbalance=4 ep=2 strategy=optim_grads_params",
                                        "moe_imbalance=4 tp=4 sp=on ep=2 strategy=optim",
                                        "moe_imbalance=4 pp=2 ep=2 strategy=optim",
                                        "moe_imbalance=4 tp=2 sp=on ep=2 etp=2 strategy=optim",
                                        "moe_imbalance=4 tp=2 sp=on strategy=optim dp_outer=2",
                                        "moe_imbalance=4 tp=2 sp=on ep=2 pp=2 strategy=no_shard" };
  const char *latent = latent_models[_i % (int)G_N_ELEMENTS (latent_models)];
  run_through_splits (_i < 3 ? expert_models[_i] : latent, splits, G_N_ELEMENTS (splits));
}
END_TEST

START_TEST (what_is_not_split_yet_is_refused_by_name)
{
  static const struct
  {
    const char *model, *words, *message;
  } cases[] = {
    { LLAMA, "tp=2 tp_overlap=async compute=mxfp8",
      "tp_overlap=async beside products with scales of blocks" },
    { GPT2, "pp=2 pp_first_layers=1 strategy=optim precision_aware=on exp_avg=fp8",
      "exp_avg=fp8 would have other scales on both stages of a tied embedding" },
  };
  ExecResult results[RANKS] = { { 0 } };
  g_autoptr (GError) error = NULL;
  g_auto (Case) c = { 0 };
  case_init (&c, cases[_i].model, cases[_i].words, 1);
  ck_assert (!exec_run_threads (&c.job, RANKS, FALSE, NULL, NULL, results, &error));
  ck_assert_msg (strstr (error->message, cases[_i].message), "%s", error->message);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("exec-split");
  TCase *tcase = tcase_create ("together");
  tcase_set_timeout (tcase, 600);
  test_add_runs (tcase, splitting_layers_changes_little, G_N_ELEMENTS (models));
  test_add_runs (tcase, stages_compute_what_one_does, G_N_ELEMENTS (models));
  test_add_runs (tcase, stages_may_split_layers, G_N_ELEMENTS (models));
  test_add_runs (tcase, products_may_be_in_pieces, G_N_ELEMENTS (models));
  test_add_runs (tcase, pieces_change_little, G_N_ELEMENTS (models));
  tcase_add_loop_test (tcase, a_wrong_exchange_is_found, 0, 2);
  test_add_runs (tcase, experts_may_be_beside_split_layers, 40);
  test_add_runs (tcase, experts_may_be_split, 44);
  tcase_add_loop_test (tcase, balance_is_of_whole_sequences, 0, 12);
  tcase_add_test (tcase, nothing_is_counted_without_the_loss);
  test_add_runs (tcase, latent_attention_may_be_split, 16);
  test_add_runs (tcase, lone_experts_are_scaled_as_the_rest, 12);
  test_add_runs (tcase, stages_may_be_interleaved, 22);
  test_add_runs (tcase, stages_may_have_moments_in_eight_bits, 8);
  test_add_runs (tcase, experts_may_have_moments_in_eight_bits, 4);
  tcase_add_test (tcase, tied_stages_may_have_moments_in_eight_bits);
  test_add_runs (tcase, stages_may_have_documents, 15);
  test_add_runs (tcase, stages_may_split_experts, 20);
  test_add_runs (tcase, checkpoints_carry_over_between_splits, G_N_ELEMENTS (models));
  tcase_add_loop_test (tcase, checkpoints_of_experts_carry_over_between_splits, 0, 5);
  tcase_add_loop_test (tcase, what_is_not_split_yet_is_refused_by_name, 0, 2);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
