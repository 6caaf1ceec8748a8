/* SPDX-License-Identifier: Apache-2.0 */
/* Published runs, by their row names in db/data/runs.csv: for those with experts, which model and
 * plan each one is, or why it is none; for all, that no group and no newer source has rows both to
 * fit and to report. */
#include "config.h"

#include "planner/runs/run-table.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static PlanRunTable *table;
static GHashTable *by_name; /* row_id -> PlanRunRow */

static void
row_free (gpointer row)
{
  plan_run_row_clear (row);
  g_free (row);
}

static void
take (PlanRunRow *row, const char *wrong, gpointer user_data)
{
  (void)user_data;
  ck_assert_msg (row != NULL, "%s", wrong);
  PlanRunRow *kept = g_memdup2 (row, sizeof *row);
  *row = (PlanRunRow){ 0 };
  g_hash_table_insert (by_name, kept->cell[PLAN_RUN_ROW_ID], kept);
}

static void
read_rows (void)
{
  g_autofree char *path
      = g_build_filename (g_getenv ("top_srcdir"), "db", "data", "runs.csv", NULL);
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;
  gsize length;
  by_name = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, row_free);
  table = plan_run_table_new ("runs.csv", take, NULL);
  ck_assert (g_file_get_contents (path, &text, &length, NULL));
  ck_assert_msg (plan_run_table_feed (table, text, length, &error)
                     && plan_run_table_end (table, &error),
                 "%s", error ? error->message : "");
}

static void
forget_rows (void)
{
  g_hash_table_unref (by_name);
  plan_run_table_free (table);
}

#define LATENT "heads=128,kv_heads=128,head_dim=192,vocab=129280,"

/* `plan` has words that the plan's text contains, and behind ! words that it does not contain. */
static const struct
{
  const char *row, *model, *plan, *remarks;
} known[] = {
  /* A capacity factor of 1 drops rows above the mean. */
  { "mlm-0777",
    "family=deepseek_v3,layers=16,hidden=2560,ffn=12288,heads=32,kv_heads=32,head_dim=192,"
    "vocab=132512,max_seq=4096,experts=72,expert_ffn=1536,shared_ffn=3072,"
    "dense_layers=1,router_groups=0,router_group_topk=0,mtp=1",
    "ep=8 moe_capacity=1 !etp= !moe_dispatcher= !moe_imbalance= !router_dtype= !hidden_dropout=",
    NULL },
  /* SimuMax's script pads experts to their mean. */
  { "simumax-0007",
    "family=deepseek_v3,layers=4,hidden=7168,ffn=18432," LATENT
    "max_seq=4096,dense_layers=1,router_groups=0,router_group_topk=0",
    "ep=8 moe_capacity=1 moe_pad_to_capacity=on router_dtype=bf16 overlap_grad_reduce=off "
    "!moe_imbalance= !moe_dispatcher= !moe_permute_fusion=",
    NULL },
  { "simumax-0013",
    "family=deepseek_v2,layers=4,hidden=5120,ffn=12288,heads=128,kv_heads=128,head_dim=192,"
    "vocab=102400,max_seq=4096,experts=160,expert_ffn=1536,shared_ffn=3072,dense_layers=1,"
    "router_groups=8,router_group_topk=3,router_scale=16",
    "ep=8", NULL },
  { "moe-0047",
    "family=qwen3_moe,layers=48,hidden=2048,ffn=6144,heads=32,kv_heads=4,head_dim=128,"
    "vocab=151936,max_seq=4096",
    "ep=16 ep_overlap=on !ep_delay_wgrad= moe_permute_fusion=off moe_router_fusion=on "
    "!moe_imbalance= !cuda_graph= "
    "!etp=",
    "router_dtype is not known: fp32 is assumed" },
  { "bridge-0158", NULL,
    "ep=8 moe_dispatcher=hybridep moe_router_fusion=on !moe_imbalance= compute=mxfp8",
    "moe_permute_fusion is not known: on is assumed" },
  /* torchtitan has no setting that its rows could leave out. */
  { "moe-0001",
    "family=deepseek_v2,layers=27,hidden=2048,ffn=10944,heads=16,kv_heads=16,head_dim=192,"
    "vocab=102400,max_seq=4096,expert_ffn=1408,shared_ffn=2816,dense_layers=1,q_lora=0",
    "stack=fsdp2@ ep=8 moe_imbalance=1.25 recompute=full !moe_dispatcher=", NULL },
  { "bridge-0153",
    "family=gpt_oss,layers=36,hidden=2880,ffn=2880,heads=64,kv_heads=8,head_dim=64,vocab=201088,"
    "max_seq=4096,rope_scaling=yarn,rope_factor=32,rope_original=4096,rope_slow=1,rope_fast=32,"
    "rope_fractional=on,expert_ffn=2880",
    "ep=64 !moe_imbalance=", "moe_dispatcher is not known: alltoall is assumed" },
  { "dgxc-0315",
    "family=llama4_text,layers=48,hidden=5120,ffn=16384,heads=40,kv_heads=8,head_dim=128,"
    "vocab=202048,max_seq=8192,qk_l2_norm=off,experts=128,moe_every=2",
    "stack=megatron@ strategy=optim pp=2 vpp=12 ep=64 !recompute=",
    "moe_dispatcher is not known: alltoall is assumed" },
  /* Megatron-LM's tests: what they do not set is its default: tp for etp, allgather, one expert
   * after the other, rows moved op by op, and a router in bf16. */
  { "mlm-0575",
    "family=gpt2,layers=12,hidden=512,ffn=2048,heads=8,kv_heads=8,head_dim=64,vocab=50432,"
    "max_seq=1024,activation=gelu,qkv_bias=off,proj_bias=off,mlp_bias=off,experts=8,"
    "topk=1,expert_ffn=2048,pre_softmax=on",
    "tp=2 ep=2 etp=2 moe_dispatcher=allgather moe_grouped_gemm=off moe_permute_fusion=off "
    "router_dtype=bf16",
    "moe_imbalance is not known" },
  { "mlm-0673", NULL,
    "tp=4 pp=2 ep=2 etp=2 moe_permute_fusion=off !moe_dispatcher= !moe_grouped_gemm= "
    "!router_dtype=",
    NULL },
  /* DeepSeek-V3's layouts are Megatron-Bridge's; its FLOPs per token count a prediction module. */
  { "bridge-0150",
    "family=deepseek_v3,layers=61,hidden=7168,ffn=18432," LATENT "max_seq=4096,mtp=1",
    "pp=4 vpp=4 pp_last_short=3 moe_dispatcher=hybridep !pp_count_embedding= !moe_shared_overlap= "
    "graph_modules=attn+moe_router+moe_preprocess",
    "dealt out as Megatron-Bridge's recipe does" },
  { "bridge-0300", NULL,
    "pp=2 vpp=4 pp_last_short=3 ep=32 !etp=", "dealt out as Megatron-Bridge's" },
  { "awsep-001", NULL,
    "pp=8 pp_last_layers=5 !vpp= ep=32 !moe_imbalance= !etp= !moe_router_fusion=",
    "dealt out as Megatron-Bridge's recipe does" },
  { "bridge-0351", NULL,
    "pp=8 vpp=4 pp_last_short=2 pp_count_embedding=on tp=2 ep_overlap=on ep_delay_wgrad=on "
    "!moe_shared_overlap= !etp=",
    NULL },
  { "bridge-0167", NULL, "pp=8 vpp=4 ep=32 tp=2 param_gather=fp8 ep_overlap=on ep_delay_wgrad=on",
    NULL },
};

START_TEST (row_is_a_plan)
{
  const PlanRunRow *const row = g_hash_table_lookup (by_name, known[_i].row);
  ck_assert_msg (row != NULL, "%s", known[_i].row);
  ck_assert_msg (!row->skipped && row->model, "%s: %s", known[_i].row, row->skipped);
  g_autofree char *model = plan_model_print (row->model), *plan = plan_print (&row->plan);
  g_auto (GStrv) words = g_strsplit (known[_i].plan, " ", -1);
  if (known[_i].model)
    ck_assert_str_eq (model, known[_i].model);
  for (char **word = words; *word; word++)
    {
      const gboolean is_absent = **word == '!';
      ck_assert_msg ((strstr (plan, *word + is_absent) == NULL) == is_absent, "%s: %s in\n%s",
                     known[_i].row, *word, plan);
    }
  if (known[_i].remarks)
    ck_assert_msg (row->remarks && strstr (row->remarks, known[_i].remarks), "%s: %s",
                   known[_i].row, row->remarks);
}
END_TEST

/* Rows that are no plan say why. */
START_TEST (other_rows_say_why)
{
  static const struct
  {
    const char *row, *reason;
  } skipped[] = {
    { "dgxc-0002", "family grok: norms and an activation that are not in the columns" },
    { "mlm-0683", "family hybrid: layers without attention, and not of a shipped model by name" },
    { "mlm-0539", "attention=unfused" },
    { "mlm-0583",
      "attention=unfused" }, /* in a container that has no deterministic fused attention */
    { "bridge-0026", "recompute is not known" },
    { "bridge-0068", "experts in mxfp8: their recipe has since 26.08" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (skipped); i++)
    {
      const PlanRunRow *const row = g_hash_table_lookup (by_name, skipped[i].row);
      ck_assert_msg (row && row->skipped && g_str_has_prefix (row->skipped, skipped[i].reason),
                     "%s: %s", skipped[i].row, row ? row->skipped : "is not there");
    }
}
END_TEST

/* Every row with experts is a plan or has one of a few reasons. */
START_TEST (rows_with_experts_are_read)
{
  GHashTableIter iter;
  gpointer value;
  guint n = 0, n_plans = 0;
  g_hash_table_iter_init (&iter, by_name);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      const PlanRunRow *const row = value;
      const char *const experts = row->cell[PLAN_RUN_EXPERTS];
      if (!experts || g_str_equal (experts, "0"))
        continue;
      n++;
      n_plans += row->skipped == NULL;
      ck_assert (row->skipped || row->model->experts > 0);
      ck_assert (row->skipped || row->plan.value[PLAN_MOE_IMBALANCE] >= 1000000);
    }
  ck_assert_uint_eq (n, 462);
  ck_assert_uint_eq (n_plans, 188);
}
END_TEST

/* Sources that were read before 2026-11-26, whose groups were assigned one by one. */
static const char *const divided[]
    = { "atorch", "bigsci",  "bridge", "dgxc",    "fms",   "foundry", "internevo", "llmc",
        "llmq",   "maxtext", "mlm",    "mlmdoc",  "moe",   "nemo",    "nt",        "pr3067",
        "pr4133", "pub",     "sc",     "simumax", "titan", "torchao", NULL };

/* A group is used to fit or to report, and a newer source is used as a whole for one of these: the
 * last digit of the SHA-1 of its name says which (docs/adding.md). */
START_TEST (nothing_is_split)
{
  g_autoptr (GHashTable) uses = g_hash_table_new (g_str_hash, g_str_equal);
  GHashTableIter iter;
  gpointer value;
  g_hash_table_iter_init (&iter, by_name);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      char **const cell = ((PlanRunRow *)value)->cell;
      const char *const id = cell[PLAN_RUN_ROW_ID], *const use = cell[PLAN_RUN_USE];
      const char *const known_use = g_hash_table_lookup (uses, cell[PLAN_RUN_GROUP]);
      ck_assert_msg (!known_use || g_str_equal (known_use, use), "%s", id);
      g_hash_table_insert (uses, cell[PLAN_RUN_GROUP], cell[PLAN_RUN_USE]);
      g_autofree char *source = g_strndup (id, strcspn (id, "-"));
      if (g_strv_contains (divided, source))
        continue;
      g_autofree char *sum = g_compute_checksum_for_string (G_CHECKSUM_SHA1, source, -1);
      const gboolean is_odd = g_ascii_xdigit_value (sum[strlen (sum) - 1]) % 2 == 1;
      ck_assert_msg (g_str_equal (use, is_odd ? "report" : "fit"), "%s", id);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("run-experts");
  TCase *tcase = tcase_create ("run-experts");
  tcase_add_unchecked_fixture (tcase, read_rows, forget_rows);
  tcase_add_loop_test (tcase, row_is_a_plan, 0, G_N_ELEMENTS (known));
  tcase_add_test (tcase, other_rows_say_why);
  tcase_add_test (tcase, rows_with_experts_are_read);
  tcase_add_test (tcase, nothing_is_split);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
