/* SPDX-License-Identifier: Apache-2.0 */
/* Models as Megatron-LM's flags describe them, and which layers are alike. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/megatron/megatron-pattern.h"
#include "planner/megatron/megatron.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define RUN "torchrun --nproc_per_node 8 p.py --vocab-size 256 --max-position-embeddings 128 "
#define GPT RUN "--num-layers 4 --hidden-size 64 --num-attention-heads 4 "
#define LLAMA \
  GPT "--ffn-hidden-size 176 --position-embedding-type rope --swiglu --normalization RMSNorm " \
      "--disable-bias-linear --untie-embeddings-and-output-weights "
#define GDN LLAMA "--experimental-attention-variant gdn "
#define MOE LLAMA "--num-experts 8 "
#define MLA LLAMA "--multi-latent-attention --qk-layernorm "

#define DIMENSIONS(ffn, head_dim) \
  "layers=4,hidden=64,ffn=" ffn ",heads=4,kv_heads=4,head_dim=" head_dim ",vocab=256,max_seq=128"
#define LLAMA_TEXT "family=llama," DIMENSIONS ("176", "16")
#define GPT_TEXT "family=gpt2," DIMENSIONS ("256", "16")
#define MIXTRAL "family=mixtral," DIMENSIONS ("176", "16") ",rope_theta=10000"
#define MIXTRAL_TEXT MIXTRAL ",expert_ffn=176"

static const struct
{
  const char *flags, *text;
} models[] = {
  { LLAMA, LLAMA_TEXT },
  { LLAMA "--group-query-attention --num-query-groups 2",
    "family=llama,layers=4,hidden=64,ffn=176,heads=4,kv_heads=2,head_dim=16,vocab=256,max_seq="
    "128" },
  { LLAMA "--kv-channels 32", "family=llama," DIMENSIONS ("176", "32") },
  { LLAMA "--norm-epsilon 1e-6 --rotary-base 500000",
    LLAMA_TEXT ",norm_eps=1e-06,rope_theta=500000" },
  { LLAMA "--apply-layernorm-1p", LLAMA_TEXT ",norm_1p=on" },
  { LLAMA "--qk-layernorm", LLAMA_TEXT ",qk_norm=on" },
  { LLAMA "--qk-layernorm --norm-epsilon 1e-6", "family=qwen3," DIMENSIONS ("176", "16") },
  { LLAMA "--qk-l2-norm --qk-layernorm", LLAMA_TEXT ",qk_l2_norm=all" },
  { LLAMA "--no-rope-freq 4", LLAMA_TEXT ",nope_every=4" },
  { LLAMA "--no-rope-freq '[0,1]*2'", LLAMA_TEXT ",nope_every=2" },
  { LLAMA "--no-rope-freq '[0]*4'", LLAMA_TEXT },
  { LLAMA "--add-qkv-bias", LLAMA_TEXT ",qkv_bias=on" },
  { LLAMA "--add-qkv-bias --norm-epsilon 1e-6", "family=qwen2," DIMENSIONS ("176", "16") },
  { LLAMA "--rotary-percent 0.25", LLAMA_TEXT ",rope_fraction=0.25" },
  { LLAMA "--position-embedding-type none", LLAMA_TEXT ",positions=none" },
  { LLAMA "--position-embedding-type yarn", LLAMA_TEXT },
  { LLAMA "--position-embedding-type yarn --rotary-scaling-factor 4 --yarn-beta-fast 16 "
          "--yarn-original-max-position-embeddings 64 --mscale-all-dim 0.5",
    LLAMA_TEXT ",rope_scaling=yarn,rope_factor=4,rope_original=64,rope_slow=1,rope_fast=16,"
               "rope_mscale_all=0.5" },
  { LLAMA "--position-embedding-type yarn --rotary-scaling-factor 4 "
          "--no-yarn-correction-range-round-to-int",
    LLAMA_TEXT ",rope_scaling=yarn,rope_factor=4,rope_original=4096,rope_slow=1,rope_fast=32,"
               "rope_fractional=on" },
  { LLAMA "--use-rope-scaling", LLAMA_TEXT ",rope_scaling=llama3,rope_factor=8,rope_original=8192,"
                                           "rope_slow=1,rope_fast=4" },
  { LLAMA "--use-rope-scaling --rope-scaling-factor 32",
    LLAMA_TEXT ",rope_scaling=llama3,rope_factor=32,rope_original=8192,rope_slow=1,rope_fast=4" },
  { LLAMA "--window-size 63,0", LLAMA_TEXT ",window=64" },
  { LLAMA "--window-size '(63, -1)'", LLAMA_TEXT ",window=64" },
  { LLAMA "--window-size -1,0", LLAMA_TEXT },
  { LLAMA "--window-size 63,0 --window-attn-skip-freq 2", LLAMA_TEXT ",window=64,window_every=2" },
  { LLAMA "--window-size 63,0 --window-attn-skip-freq 1", LLAMA_TEXT },
  { LLAMA "--window-size 63,0 --window-attn-skip-freq '[0]*2+[1]*2'",
    LLAMA_TEXT ",window=64,window_from=2" },
  { LLAMA "--window-size 63,0 --window-attn-skip-freq '[0,1]*2'",
    LLAMA_TEXT ",window=64,window_from=1,window_every=2" },
  { LLAMA "--mtp-num-layers 1", LLAMA_TEXT ",mtp=1" },
  { LLAMA "--attention-output-gate", LLAMA_TEXT ",attn_gate=on" },
  { LLAMA "--hybrid-layer-pattern 'M-M*' --mamba-head-dim 16",
    LLAMA_TEXT ",pattern=M-M*,ssm_heads=8,ssm_head_dim=16,ssm_groups=8,ssm_state=128,ssm_conv=4" },
  { MOE "--hybrid-override-pattern ME*- --mamba-num-heads 6 --mamba-head-dim 32 "
        "--mamba-num-groups 2 --mamba-state-dim 16 --moe-layer-freq 3",
    MIXTRAL_TEXT ",pattern=ME*-,ssm_heads=6,ssm_head_dim=32,ssm_groups=2,ssm_state=16,ssm_conv=4" },
  { MOE "--moe-latent-size 16", MIXTRAL_TEXT ",expert_hidden=16" },
  { LLAMA "--linear-attention-freq 2", LLAMA_TEXT }, /* of no variant: unused */
  { GDN "--linear-attention-freq 2",
    LLAMA_TEXT ",attn_every=2,delta_key_heads=16,delta_value_heads=32,delta_key_dim=128,"
               "delta_value_dim=128,delta_conv=4" },
  { GDN "--linear-attention-freq '([1]*1+[0])*2' --linear-conv-kernel-dim 3 "
        "--linear-key-head-dim 8 --linear-value-head-dim 16 --linear-num-key-heads 2 "
        "--linear-num-value-heads 4",
    LLAMA_TEXT ",attn_every=2,delta_key_heads=2,delta_value_heads=4,delta_key_dim=8,"
               "delta_value_dim=16,delta_conv=3" },
  { GDN "--linear-attention-freq '[1]*4'",
    LLAMA_TEXT ",attn_every=5,delta_key_heads=16,delta_value_heads=32,delta_key_dim=128,"
               "delta_value_dim=128,delta_conv=4" },
  { GPT, GPT_TEXT },
  { GPT "--no-bias-gelu-fusion", GPT_TEXT ",activation=gelu" },
  { GPT "--untie-embeddings-and-output-weights", GPT_TEXT ",tied=off" },
  { GPT "--disable-bias-linear",
    "family=mpt," DIMENSIONS ("256", "16") ",norm_bias=on,positions=learned" },
  { GPT "--untie-embeddings-and-output-weights --use-rotary-position-embeddings "
        "--rotary-percent 0.25 --no-bias-gelu-fusion",
    "family=gpt_neox," DIMENSIONS ("256", "16") ",parallel=off" },
  { GPT "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear "
        "--untie-embeddings-and-output-weights --squared-relu",
    "family=arcee," DIMENSIONS ("256", "16") },
  { GPT "--position-embedding-type rope --normalization RMSNorm --disable-bias-linear "
        "--untie-embeddings-and-output-weights --quick-geglu",
    "family=llama," DIMENSIONS ("256", "16") ",activation=quick_gelu" },
  { MOE, MIXTRAL_TEXT },
  { MOE "--moe-router-topk 1", LLAMA_TEXT ",experts=8,topk=1,expert_ffn=176" },
  { MOE "--moe-router-topk 1 --moe-router-score-function sigmoid --moe-apply-probs-on-input",
    LLAMA_TEXT ",experts=8,topk=1,expert_ffn=176,router_score=sigmoid,scores_on_input=on" },
  { MOE "--moe-ffn-hidden-size 32", MIXTRAL ",expert_ffn=32" },
  { MOE "--moe-shared-expert-gate", MIXTRAL_TEXT },
  { MOE "--moe-shared-expert-intermediate-size 48 --moe-shared-expert-gate",
    MIXTRAL_TEXT ",shared_ffn=48,shared_gate=on" },
  { MOE "--moe-router-enable-expert-bias", MIXTRAL_TEXT ",router_bias=on" },
  { MOE "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
        "--moe-router-pre-softmax --moe-router-num-groups 4 --moe-router-group-topk 2 "
        "--moe-router-topk-scaling-factor 2.5",
    MIXTRAL_TEXT ",router_bias=on,router_score=sigmoid,router_groups=4,router_group_topk=2,"
                 "router_scale=2.5" },
  { MOE "--moe-router-pre-softmax --moe-router-num-groups 4", MIXTRAL_TEXT ",pre_softmax=on" },
  { MOE "--softmax-type learnable", MIXTRAL_TEXT ",sinks=on" },
  { MOE "--activation-func-clamp-value 7 --glu-linear-offset 1.5",
    "family=mixtral," DIMENSIONS ("176", "16") ",rope_theta=10000,glu_limit=7,glu_offset=1.5,"
                                               "expert_ffn=176" },
  { GPT "--num-experts 8",
    "family=gpt2," DIMENSIONS ("256", "16") ",experts=8,topk=2,expert_ffn=256,expert_bias=on" },
  { MOE "--moe-layer-freq '([0]*1+[1]*3)'", MIXTRAL_TEXT ",dense_layers=1" },
  { MOE "--moe-layer-freq '([0]+[1])*2'", MIXTRAL_TEXT ",moe_every=2" },
  { MOE "--moe-layer-freq '[0,0,0,1]'", MIXTRAL_TEXT ",moe_every=4" },
  { MOE "--num-layers 8 --moe-layer-freq '[0]*3+[1]+([0]+[1])*2'",
    "family=mixtral,layers=8,hidden=64,ffn=176,heads=4,kv_heads=4,head_dim=16,vocab=256,max_seq="
    "128,"
    "rope_theta=10000,expert_ffn=176,dense_layers=3,moe_every=2" },
  { LLAMA "--num-experts 0", LLAMA_TEXT },
  { MLA,
    "family=llama," DIMENSIONS ("176", "192") ",kv_lora=32,nope_dim=128,rope_dim=64,v_dim=128" },
  { MLA "--q-lora-rank 24 --kv-lora-rank 16 --qk-head-dim 8 --qk-pos-emb-head-dim 4 "
        "--v-head-dim 12 --add-qkv-bias",
    "family=llama," DIMENSIONS ("176",
                                "12") ",q_lora=24,kv_lora=16,nope_dim=8,rope_dim=4,v_dim=12" },
};

static void
read_text (const char *text, PlanMegatron *out)
{
  g_autoptr (GError) error = NULL;
  ck_assert_msg (plan_megatron_parse (text, "t.sh", 0, out, &error), "%s: %s", text,
                 error ? error->message : "");
}

START_TEST (flags_mean_models)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autoptr (GError) error = NULL;
  read_text (models[_i].flags, &megatron);
  g_autoptr (PlanModel) model = plan_megatron_model (&megatron, &error);
  ck_assert_msg (model != NULL, "%s: %s", models[_i].flags, error ? error->message : "");
  g_autofree char *text = plan_model_print (model);
  ck_assert_msg (strcmp (text, models[_i].text) == 0, "%s\nnot %s\nfrom %s", text, models[_i].text,
                 models[_i].flags);
}
END_TEST

#define BATCH "--seq-length 64 --micro-batch-size 1 --global-batch-size 16 --bf16 "
#define TE_LOSS "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te "

/* Settings of experts, and the errors and warnings of Megatron-LM and of this program about
 * them. */
static const struct
{
  const char *flags;
  gint64 date;
  const char *fields;
  const char *said; /* a part of an error or a warning; NULL: there is none */
} settings[] = {
  { MOE BATCH, 0, "moe_permute_fusion=off moe_grouped_gemm=off moe_dispatcher=allgather", NULL },
  { MOE BATCH "--moe-permute-fusion --moe-grouped-gemm --moe-aux-loss-coeff 0.01", 0,
    "moe_permute_fusion=on moe_grouped_gemm=on", NULL },
  { MOE BATCH "--moe-layer-recompute", 0, "recompute=selective recompute_modules=core_attn+moe",
    "recomputes core_attn" },
  { MOE BATCH "--moe-layer-recompute --recompute-granularity selective --recompute-modules "
              "layernorm",
    0, "recompute=selective recompute_modules=layernorm+moe", NULL },
  { MOE BATCH "--moe-layer-recompute --recompute-granularity full --recompute-method uniform "
              "--recompute-num-layers 1",
    0, "", "excludes full recompute" },
  { LLAMA BATCH "--moe-layer-recompute", 0, "recompute=none", NULL },
  { MOE BATCH "--account-for-loss-in-pipeline-split", 0, "pp=1 pp_count_loss=off",
    "decides nothing without pipeline" },
  { MOE BATCH "--account-for-loss-in-pipeline-split --pipeline-model-parallel-size 2", 0,
    "pp=2 pp_count_loss=on", NULL },
  { MOE BATCH "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
              "--no-overlap-p2p-communication",
    0, "pp=4 vpp=2 pp_overlap=off", NULL },
  { MOE BATCH "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
              "--overlap-p2p-communication-warmup-flush",
    0, "pp=4 vpp=2 pp_overlap=warmup_flush", NULL },
  { MOE BATCH "--pipeline-model-parallel-size 4 --no-overlap-p2p-communication", 0,
    "pp=4 vpp=1 pp_overlap=on", NULL },
  { MOE BATCH TE_LOSS, 0, "", "for want of stability" },
  { MOE BATCH TE_LOSS, 20260602, "ce_fusion=te", NULL },
  { LLAMA BATCH "--cuda-graph-impl local --cuda-graph-scope full_iteration", 0,
    "cuda_graph=on graph_modules=none", NULL },
  { LLAMA BATCH "--enable-cuda-graph --cuda-graph-scope full_iteration", 0, "cuda_graph=on", NULL },
  { LLAMA BATCH "--cuda-graph-impl none --cuda-graph-scope attn", 0,
    "cuda_graph=off graph_modules=none", NULL },
  { LLAMA BATCH "--cuda-graph-impl transformer_engine", 0, "cuda_graph=off graph_modules=attn+mlp",
    NULL },
  { LLAMA BATCH "--external-cuda-graph", 0, "graph_modules=attn+mlp", NULL },
  { LLAMA BATCH "--external-cuda-graph --cuda-graph-scope attn", 0, "graph_modules=attn", NULL },
  { LLAMA BATCH "--cuda-graph-impl local --cuda-graph-scope full", 0, "graph_modules=attn+mlp",
    NULL },
  { LLAMA BATCH "--cuda-graph-impl transformer_engine --cuda-graph-modules attn mlp", 0,
    "graph_modules=attn+mlp", NULL },
  { MOE BATCH "--cuda-graph-impl transformer_engine", 0, "graph_modules=attn+moe", NULL },
  { MOE BATCH "--moe-layer-freq '([0]*1+[1]*3)' --cuda-graph-impl transformer_engine", 0,
    "graph_modules=attn+mlp+moe", NULL },
  { MOE BATCH "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router", 0,
    "graph_modules=attn+moe_router", NULL },
  { MOE BATCH "--cuda-graph-impl local --cuda-graph-modules moe_router", 0,
    "graph_modules=moe_router+moe_preprocess", NULL },
};

START_TEST (settings_are_read)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) fields = g_strsplit (settings[_i].fields, " ", -1);
  const char *said = NULL;
  ck_assert (
      plan_megatron_parse (settings[_i].flags, "t.sh", settings[_i].date, &megatron, &error));
  for (char **f = fields; *f && **f; f++)
    {
      g_auto (GStrv) halves = g_strsplit (*f, "=", 2);
      PlanField field;
      ck_assert (plan_field_parse (halves[0], &field, NULL));
      g_autofree char *got = plan_field_print (field, megatron.plan.value[field]);
      ck_assert_msg (strcmp (got, halves[1]) == 0, "%s: %s, not %s", settings[_i].flags, got, *f);
    }
  for (guint i = 0; i < megatron.notes->len; i++)
    {
      const PlanMegatronNote *const note = g_ptr_array_index (megatron.notes, i);
      if (note->severity != PLAN_MEGATRON_NOTE && !strstr (note->text, "CUDA_DEVICE_MAX"))
        said = note->text;
    }
  ck_assert_msg ((said == NULL) == (settings[_i].said == NULL), "%s: %s", settings[_i].flags, said);
  ck_assert (!said || strstr (said, settings[_i].said));
}
END_TEST

#define UNSUPPORTED PLAN_ERROR_UNSUPPORTED
#define INVALID PLAN_ERROR_INVALID

static const struct
{
  const char *flags;
  PlanErrorCode code;
  const char *message;
} failures[] = {
  { GPT "--qk-layernorm", UNSUPPORTED, "--qk-layernorm with --normalization LayerNorm" },
  { LLAMA "--multi-latent-attention", UNSUPPORTED, "without --qk-layernorm" },
  { MLA "--position-embedding-type learned_absolute", UNSUPPORTED, "learned_absolute" },
  { LLAMA "--position-embedding-type relative", UNSUPPORTED, "--position-embedding-type relative" },
  { GPT "--softmax-type off-by-one", UNSUPPORTED, "--softmax-type off-by-one" },
  { MOE "--mtp-num-layers 1 --normalization LayerNorm", UNSUPPORTED, "--mtp-num-layers with" },
  { LLAMA "--hybrid-layer-pattern 'M*|M*'", UNSUPPORTED, "--hybrid-layer-pattern" },
  { LLAMA "--hybrid-layer-pattern 'M*M*/M'", UNSUPPORTED, "--hybrid-layer-pattern" },
  { LLAMA "--hybrid-layer-pattern M*M*G", UNSUPPORTED, "--hybrid-layer-pattern" },
  { LLAMA "--hybrid-layer-pattern M*M* --mtp-num-layers 1", UNSUPPORTED, "--hybrid-layer-pattern" },
  { LLAMA "--hybrid-layer-pattern M*M*-", INVALID, "describes 5 layers, not layers=4" },
  { LLAMA "--hybrid-layer-pattern M*M* --mamba-head-dim 16 --mamba-num-groups 3", INVALID,
    "ssm_groups" },
  { MLA "--qk-l2-norm", UNSUPPORTED, "--qk-l2-norm with --multi-latent-attention" },
  { LLAMA "--no-rope-freq '[0,1,1,0]'", UNSUPPORTED, "--no-rope-freq '[0,1,1,0]'" },
  { LLAMA "--no-rope-freq '[1]*5'", INVALID, "5 marks, but there are 4 layers" },
  { GDN, UNSUPPORTED, "gdn without --linear-attention-freq" },
  { GDN "--linear-attention-freq '[0,1,1,0]'", UNSUPPORTED, "all but the last of every so many" },
  { GDN "--linear-attention-freq '[1]*5'", INVALID, "5 marks, but there are 4 layers" },
  { GDN "--linear-attention-freq 2 --linear-num-key-heads 3", INVALID, "key_heads" },
  { LLAMA "--experimental-attention-variant dsa", UNSUPPORTED, "gdn2 or dsa" },
  { LLAMA "--experimental-attention-variant gdn2", UNSUPPORTED, "gdn2 or dsa" },
  { MOE "--moe-layer-freq 2", UNSUPPORTED, "--moe-layer-freq '2'" },
  { MOE "--moe-layer-freq '[1,0,0,1]'", UNSUPPORTED, "--moe-layer-freq '[1,0,0,1]'" },
  { MOE "--moe-layer-freq '[0]*4'", UNSUPPORTED, "no layer has experts" },
  { MOE "--moe-layer-freq '[1]*5'", INVALID, "5 marks, but there are 4 layers" },
  { MOE "--moe-layer-freq 'often'", INVALID, "'often' is neither a number nor a list" },
  { MOE "--moe-layer-freq 0", INVALID, "'0' is neither" },
  { MOE "--moe-layer-freq '[1,2,1,1]'", INVALID, "neither" },
  { MOE "--moe-layer-freq '[1'", INVALID, "neither" },
  { MOE "--moe-layer-freq '[1]*[1]'", INVALID, "neither" },
  { MOE "--moe-layer-freq '[1]+4'", INVALID, "neither" },
  { MOE "--moe-layer-freq '[1]*99999'", INVALID, "neither" },
  { MOE "--moe-router-topk 9", INVALID, "topk: 9 is out of range" },
  { LLAMA "--window-size 63", INVALID, "--window-size: '63' is not two numbers" },
  { LLAMA "--window-size left,right", INVALID, "--window-size: 'left,right'" },
  { LLAMA "--window-size 63,0 --window-attn-skip-freq 3", UNSUPPORTED, "--window-attn-skip-freq" },
  { LLAMA "--rotary-percent 0.01", INVALID, "rope_fraction" },
  { LLAMA "--num-layers 65537", INVALID, "layers" },
  { "torchrun p.py --hidden-size 64", INVALID, "--num-layers is missing" },
};

START_TEST (failures_are_explained)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autoptr (GError) error = NULL;
  read_text (failures[_i].flags, &megatron);
  g_autoptr (PlanModel) model = plan_megatron_model (&megatron, &error);
  ck_assert_msg (model == NULL, "%s", failures[_i].flags);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, (gint)failures[_i].code)
                     && strstr (error->message, failures[_i].message),
                 "%s: %s", failures[_i].flags, error->message);
}
END_TEST

/* A command line and a model of one's own, and the complaint about their differences; NULL:
 * none. */
static const struct
{
  const char *flags, *model, *message;
} pairs[] = {
  { LLAMA, LLAMA_TEXT, NULL },
  { LLAMA, "llama3-8b", "layers=32, not 4; hidden=4096, not 64" },
  { LLAMA "--qk-layernorm", LLAMA_TEXT, "qk_norm=off, not on" },
  { GPT, LLAMA_TEXT, "norm=rmsnorm, not layernorm" },
  { "torchrun p.py --bf16", "llama3-8b", NULL }, /* the command line describes no model */
  { "torchrun p.py --hidden-size 64 --ffn-hidden-size 176 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights",
    LLAMA_TEXT, NULL },                           /* the model alone says the rest */
  { LLAMA "--vocab-size 250", LLAMA_TEXT, NULL }, /* padding makes both sizes equal */
  { LLAMA "--vocab-size 512", LLAMA_TEXT, "vocab=256, not 512" },
  { LLAMA "--hybrid-layer-pattern G", LLAMA_TEXT, "cannot be compared" },
};

START_TEST (another_model_is_noted)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autoptr (PlanModel) model = plan_model_new (pairs[_i].model, NULL);
  read_text (pairs[_i].flags, &megatron);
  g_ptr_array_set_size (megatron.notes, 0);
  plan_megatron_note_other_model (&megatron, "X", model);
  const PlanMegatronNote *note = megatron.notes->len ? g_ptr_array_index (megatron.notes, 0) : NULL;
  ck_assert_msg (!note == !pairs[_i].message, "%s: %s", pairs[_i].flags, note ? note->text : "");
  ck_assert_msg (!note || strstr (note->text, pairs[_i].message), "%s", note ? note->text : "");
}
END_TEST

/* Writes a random sum of products of layer patterns in Python, and the layers that it stands
 * for. */
static void
random_pattern (GRand *rand, guint depth, GString *text, GByteArray *marks)
{
  const guint terms = (guint)g_rand_int_range (rand, 1, 4);
  for (guint i = 0; i < terms; i++)
    {
      g_autoptr (GByteArray) term = g_byte_array_new ();
      const guint times = (guint)g_rand_int_range (rand, 0, 4);
      const gboolean is_before = g_rand_boolean (rand);
      g_string_append (text, i > 0 ? " +" : "");
      if (is_before)
        g_string_append_printf (text, "%u*", times);
      if (depth > 0 && g_rand_boolean (rand))
        {
          g_string_append (text, "( ");
          random_pattern (rand, depth - 1, text, term);
          g_string_append (text, ")");
        }
      else
        {
          const guint n = (guint)g_rand_int_range (rand, 0, 4);
          g_string_append (text, "[");
          for (guint j = 0; j < n; j++)
            {
              const guint8 mark = (guint8)g_rand_int_range (rand, 0, 2);
              g_string_append_printf (text, "%s%u", j > 0 ? ", " : "", mark);
              g_byte_array_append (term, &mark, 1);
            }
          g_string_append (text, "]");
        }
      if (!is_before)
        g_string_append_printf (text, "*%u", times);
      for (guint t = 0; t < times; t++)
        g_byte_array_append (marks, term->data, term->len);
    }
}

START_TEST (patterns_are_evaluated)
{
  GRand *rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GByteArray) marks = g_byte_array_new ();
  g_autoptr (GError) error = NULL;
  random_pattern (rand, 3, text, marks);
  g_rand_free (rand);
  g_autofree guint8 *got = plan_megatron_pattern_parse (text->str, "--x", marks->len, &error);
  ck_assert_msg (error == NULL, "seed %d: %s", _i, error ? error->message : "");
  ck_assert_msg (marks->len == 0 || memcmp (got, marks->data, marks->len) == 0, "seed %d: %s", _i,
                 text->str);
}
END_TEST

/* Every pattern of six layers is expressed in our words, which are compared with the model's
 * layers, or refused. */
START_TEST (patterns_become_layers)
{
  g_autoptr (GString) text = g_string_new (MOE "--num-layers 6 --moe-layer-freq '[");
  for (guint i = 0; i < 6; i++)
    g_string_append_printf (text, "%s%d", i > 0 ? "," : "", _i >> i & 1);
  g_string_append (text, "]'");
  g_auto (PlanMegatron) megatron = { 0 };
  g_autoptr (GError) error = NULL;
  gboolean is_sayable = FALSE;
  read_text (text->str, &megatron);
  g_autoptr (PlanModel) model = plan_megatron_model (&megatron, &error);
  for (guint i = 0; model && i < 6; i++)
    ck_assert_int_eq (plan_model_is_moe_layer (model, i), _i >> i & 1);
  for (gint64 dense = 0; dense < 6; dense++)
    for (gint64 every = 1; every <= 6; every++)
      {
        int marks = 0;
        for (gint64 i = dense; i < 6; i++)
          marks |= ((i + 1) % every == 0) << i;
        is_sayable = is_sayable || (marks == _i && marks != 0);
      }
  ck_assert_msg ((model != NULL) == is_sayable, "%s", text->str);
}
END_TEST

/* A log prints members of an enumeration. */
START_TEST (logs_name_modules)
{
  static const struct
  {
    const char *value, *fields;
  } logs[]
      = { { "[<CudaGraphModule.attn: 1>, <CudaGraphModule.moe_router: 4>]", "attn+moe_router" },
          { "['attn']", "attn" },
          { "[]", "attn+moe" } };
  for (guint i = 0; i < G_N_ELEMENTS (logs); i++)
    {
      g_autoptr (GError) error = NULL;
      g_auto (PlanMegatron) megatron = { 0 };
      g_autofree char *log = g_strdup_printf (
          "------------------------ arguments ------------------------\n"
          "  num_layers ..................... 4\n  hidden_size .................... 64\n"
          "  num_attention_heads ............ 4\n  seq_length ..................... 128\n"
          "  max_position_embeddings ........ 128\n  num_experts .................... 8\n"
          "  micro_batch_size ............... 1\n  global_batch_size .............. 8\n"
          "  world_size ..................... 8\n  padded_vocab_size .............. 256\n"
          "  cuda_graph_impl ................ transformer_engine\n"
          "  cuda_graph_modules ............. %s\n"
          "-------------------- end of arguments ---------------------\n",
          logs[i].value);
      ck_assert_msg (plan_megatron_parse (log, "log", 0, &megatron, &error), "%s", error->message);
      g_autofree char *modules
          = plan_field_print (PLAN_GRAPH_MODULES, megatron.plan.value[PLAN_GRAPH_MODULES]);
      ck_assert_str_eq (modules, logs[i].fields);
    }
}
END_TEST

int
main (void)
{
  TCase *tcase = tcase_create ("megatron-shape");
  tcase_add_test (tcase, logs_name_modules);
  tcase_add_loop_test (tcase, flags_mean_models, 0, G_N_ELEMENTS (models));
  tcase_add_loop_test (tcase, settings_are_read, 0, G_N_ELEMENTS (settings));
  tcase_add_loop_test (tcase, failures_are_explained, 0, G_N_ELEMENTS (failures));
  tcase_add_loop_test (tcase, another_model_is_noted, 0, G_N_ELEMENTS (pairs));
  tcase_add_loop_test (tcase, patterns_are_evaluated, 0, 300);
  tcase_add_loop_test (tcase, patterns_become_layers, 0, 64);
  Suite *suite = suite_create ("megatron-shape");
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
