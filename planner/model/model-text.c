/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical text of a model: family, the eight dimensions, name, then every other key of the
 * table below that differs from its family's default. Keys are read in any order; kv_heads (=
 * heads), head_dim (= hidden / heads), expert_ffn (= ffn), name and family may be left out. */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <string.h>

#define DEFAULT_NAME "custom"
#define N_DIMENSIONS 8

static const char *const flags[] = { "off", "on", NULL };
static const char *const norms[] = { "rmsnorm", "layernorm", NULL };
static const char *const activations[]
    = { "silu", "gelu", "gelu_tanh", "relu", "relu2", "quick_gelu", NULL };
static const char *const scores[] = { "softmax", "sigmoid", "sqrtsoftplus", NULL };
static const char *const scalings[]
    = { "none", "linear", "dynamic", "llama3", "yarn", "longrope", NULL };
static const char *const qk_norms[] = { "off", "on", "full", NULL };
static const char *const l2_norms[] = { "off", "rope", "all", NULL };
static const char *const positions[] = { "rope", "alibi", "learned", "none", NULL };

#define INT_AT(key, field, least, most, text) \
  { \
    { key, #least " to " #most, text, PLAN_MODEL_KEY_INT }, G_STRUCT_OFFSET (PlanModel, field), \
        NULL, least, most \
  }
#define REAL_AT(key, field, least, most, text) \
  { \
    { key, #least " to " #most, text, PLAN_MODEL_KEY_REAL }, G_STRUCT_OFFSET (PlanModel, field), \
        NULL, least, most \
  }
#define WORD_AT(key, field, names, values, text) \
  { \
    { key, values, text, PLAN_MODEL_KEY_WORD }, G_STRUCT_OFFSET (PlanModel, field), names, 0, \
        G_N_ELEMENTS (names) - 2 \
  }
#define LIST_AT(key, field, text) \
  { \
    { key, "1e-6 to 1e6, with : between them", text, PLAN_MODEL_KEY_LIST }, \
        G_STRUCT_OFFSET (PlanModel, field), NULL, 0, 0 \
  }
#define PATTERN_AT(key, field, text) \
  { \
    { key, "letters M * - E", text, PLAN_MODEL_KEY_PATTERN }, G_STRUCT_OFFSET (PlanModel, field), \
        NULL, 0, 0 \
  }
#define FLAG(key, field, text) \
  { \
    { key, "off on", text, PLAN_MODEL_KEY_FLAG }, G_STRUCT_OFFSET (PlanModel, field), flags, 0, 1 \
  }
#define INT(field, least, most, text) INT_AT (#field, field, least, most, text)
#define REAL(field, least, most, text) REAL_AT (#field, field, least, most, text)
#define WORD(field, names, values, text) WORD_AT (#field, field, names, values, text)

/* clang-format off */
static const struct
{
  PlanModelKey key;
  gsize offset;
  const char *const *words;
  double min, max;
} table[] = {
  INT (layers, 1, 10000, "transformer layers"), /* a search over this many takes 20 s of a core */
  INT (hidden, 1, 2147483647, "width of the residual stream"),
  INT (ffn, 1, 2147483647, "inner width of the MLP of dense layers"),
  INT (heads, 1, 2147483647, "query heads"),
  INT (kv_heads, 1, 2147483647, "key and value heads; left out, as many as heads"),
  INT (head_dim, 1, 2147483647, "width of a head; left out, hidden / heads"),
  INT (vocab, 1, 2147483647, "rows of the embedding, without padding"),
  INT (max_seq, 1, 2147483647, "longest sequence"),
  REAL (norm_eps, 1e-12, 1, "what norms add below the root"),
  REAL_AT ("rope_theta", rope.theta, 1, 1e15, "base of rotary positions"),
  FLAG ("tied", tied_embeddings, "embedding and output layer are one matrix"),
  WORD (norm, norms, "rmsnorm layernorm", "kind of every norm"),
  FLAG ("norm_bias", norm_bias, "the norms before attention and MLP and the final one add a bias"),
  FLAG ("norm_1p", norm_1p, "norms scale by 1 + weight"),
  FLAG ("post_norms", post_norms, "norms also behind attention and MLP"),
  WORD (qk_norm, qk_norms, "off on full", "a norm on queries and keys: of each head, or of all together"),
  WORD (qk_l2_norm, l2_norms, "off rope all",
        "queries and keys with a weightless norm: those with rope, or all"),
  WORD (activation, activations, "silu gelu gelu_tanh relu relu2 quick_gelu", "of the MLP"),
  FLAG ("gated", gated, "the MLP multiplies two projections, as SwiGLU does"),
  REAL (glu_limit, 0, 1e9, "bound on gates, and on what they multiply either way, 0 none"),
  REAL (glu_offset, 0, 1e9, "what is added to what gates multiply"),
  FLAG ("qkv_bias", qkv_bias, "bias on query, key and value"),
  FLAG ("proj_bias", proj_bias, "bias on the projection out of attention"),
  FLAG ("mlp_bias", mlp_bias, "biases in the MLP of dense layers"),
  WORD (positions, positions, "rope alibi learned none", "how positions get in; learned is a table of max_seq rows"),
  REAL (rope_fraction, 1e-6, 1, "share of a head that rotary positions turn"),
  WORD_AT ("rope_scaling", rope.scaling, scalings, "none linear dynamic llama3 yarn longrope",
           "how rotary positions reach beyond rope_original tokens"),
  REAL_AT ("rope_factor", rope.factor, 1, 1e6, "how many times as far"),
  INT_AT ("rope_original", rope.original, 0, 2147483647, "longest sequence before that; left out, max_seq"),
  REAL_AT ("rope_slow", rope.slow, 0, 1e9, "turns in rope_original up to which pairs are slowed by all of it"),
  REAL_AT ("rope_fast", rope.fast, 0, 1e9, "turns in rope_original from which pairs are not slowed"),
  REAL_AT ("rope_mscale", rope.mscale, 0, 1e6, "yarn: rotated heads grow by 1 + rope_mscale / 10 x ln rope_factor"),
  REAL_AT ("rope_mscale_all", rope.mscale_all, 0, 1e6, "yarn: of that, what latent attention's scores take instead"),
  FLAG ("rope_fractional", rope.is_fractional, "yarn: slowing begins and ends between pairs, too"),
  LIST_AT ("rope_short", rope.shorter, "longrope: by how much each pair is slowed up to rope_original"),
  LIST_AT ("rope_long", rope.longer, "longrope: the same in longer sequences"),
  FLAG ("parallel", parallel, "attention and MLP read the same residual"),
  FLAG ("shared_norm", shared_norm, "they read it through one norm"),
  FLAG ("embed_scale", embed_scale, "embeddings times the root of hidden"),
  FLAG ("embed_norm", embed_norm, "a norm behind the embedding"),
  INT (window, 0, 2147483647, "tokens that windowed layers look back on, 0 all"),
  INT (window_from, 0, 65535, "first windowed layer"),
  INT (window_every, 1, 65536, "from it on, one layer in so many is windowed"),
  INT (full_every, 0, 65536, "one layer in so many, the last, has no window, others do; 0 as above"),
  FLAG ("window_chunks", window_chunks,
        "windows are chunks: tokens look back to the first of their chunk"),
  INT (nope_every, 0, 65536, "one layer in so many, the last, has no rotary positions; 0 none"),
  REAL (rope_local, 0, 1e15, "base of rotary positions of windowed layers, unscaled; 0 as others"),
  REAL (attn_scalar, 0, 1e9, "scores are divided by its root; 0 is head_dim"),
  REAL (attn_softcap, 0, 1e9, "bound on attention scores, 0 none"),
  REAL (logit_softcap, 0, 1e9, "bound on logits, 0 none"),
  INT (experts, 0, 65536, "routed experts of a layer, 0 dense"),
  INT (topk, 0, 65536, "experts that a token visits"),
  INT (expert_ffn, 0, 2147483647, "inner width of an expert; left out, ffn"),
  INT (expert_hidden, 0, 2147483647, "width that experts read and make, between two products; 0 is hidden"),
  INT (shared_ffn, 0, 2147483647, "inner width of all shared experts together, 0 none"),
  FLAG ("shared_gate", shared_gate, "a learned gate on the shared experts"),
  INT (dense_layers, 0, 65536, "first layers without experts"),
  INT (moe_every, 1, 65536, "one layer in so many has experts, the last of them"),
  FLAG ("router_bias", router_bias, "the router balances by a bias per expert"),
  WORD (router_score, scores, "softmax sigmoid sqrtsoftplus", "what makes scores of the router's products"),
  FLAG ("pre_softmax", pre_softmax, "the softmax is over all experts, not over the chosen ones"),
  INT (router_groups, 0, 65536, "groups of experts, of which the best are chosen first, 0 none"),
  INT (router_group_topk, 0, 65536, "how many groups are chosen"),
  REAL (router_scale, 1e-6, 1e6, "what the scores of the chosen are multiplied by"),
  FLAG ("scores_on_input", scores_on_input, "scores multiply what an expert reads, not what it makes"),
  FLAG ("expert_bias", expert_bias, "biases in the products of router and experts"),
  INT (q_lora, 0, 2147483647, "rank of latent queries, 0 none"),
  INT (kv_lora, 0, 2147483647, "rank of latent keys and values, 0: attention is not latent"),
  INT (nope_dim, 0, 2147483647, "part of a latent head without positions"),
  INT (rope_dim, 0, 2147483647, "part of a latent head with rotary positions"),
  INT (v_dim, 0, 2147483647, "width of a latent value head"),
  FLAG ("attn_gate", attn_gate, "attention's output is gated by more columns of the queries' product"),
  INT_AT ("attn_every", delta.attn_every, 0, 65536,
          "one layer in so many, the last, has attention, others the delta rule"),
  INT_AT ("delta_key_heads", delta.key_heads, 0, 2147483647, "heads of queries and keys of the delta rule"),
  INT_AT ("delta_value_heads", delta.value_heads, 0, 2147483647, "heads of its values"),
  INT_AT ("delta_key_dim", delta.key_dim, 0, 65536, "width of such a head of keys"),
  INT_AT ("delta_value_dim", delta.value_dim, 0, 65536, "width of such a head of values"),
  INT_AT ("delta_conv", delta.conv, 0, 65536, "tokens that its convolution sees"),
  PATTERN_AT ("pattern", pattern,
              "a letter per layer: M Mamba-2, * attention, - MLP, E experts; empty: none"),
  INT_AT ("ssm_heads", ssm.heads, 0, 2147483647, "heads of layers M"),
  INT_AT ("ssm_head_dim", ssm.head_dim, 0, 65536, "width of such a head"),
  INT_AT ("ssm_groups", ssm.groups, 0, 65536, "groups of such heads that share what writes and reads states"),
  INT_AT ("ssm_state", ssm.state, 0, 65536, "width of the state of each of a head's columns"),
  INT_AT ("ssm_conv", ssm.conv, 0, 65536, "tokens that the convolution of layers M sees"),
  FLAG ("sinks", sinks, "a learned score per head that takes part in attention's softmax"),
  INT (mtp, 0, 64, "multi-token prediction modules"),
};

/* The defaults of each family. They are transformers' for its model_type, except norm_eps of llama
 * and mistral, whether routers of qwen3_moe scale the chosen probabilities, the experts of dots1,
 * and kimi_k2, which transformers lacks; these are as in the published checkpoints. */
static const struct
{
  const char *name, *defaults;
} families[] = {
#define DELTA \
  "attn_gate=on,attn_every=4,delta_key_heads=16,delta_value_heads=32,delta_key_dim=128,delta_value_dim=128,delta_conv=4"
  { "llama", "" },
  { "mistral", "" },
  { "qwen2", "qkv_bias=on,norm_eps=1e-06" },
  { "qwen3", "qk_norm=on,norm_eps=1e-06,head_dim=128" },
  { "gemma", "tied=on,activation=gelu_tanh,norm_1p=on,embed_scale=on,norm_eps=1e-06,head_dim=256" },
  { "gemma2", "tied=on,activation=gelu_tanh,norm_1p=on,embed_scale=on,norm_eps=1e-06,head_dim=256,"
              "post_norms=on,window=4096,window_every=2,attn_scalar=256,attn_softcap=50,logit_softcap=30" },
  { "gemma3_text", "tied=on,activation=gelu_tanh,norm_1p=on,embed_scale=on,norm_eps=1e-06,head_dim=256,"
                   "post_norms=on,qk_norm=on,window=4096,full_every=6,attn_scalar=256,rope_theta=1000000,"
                   "rope_local=10000" },
  { "gpt2", "tied=on,norm=layernorm,norm_bias=on,activation=gelu_tanh,gated=off,qkv_bias=on,proj_bias=on,"
            "mlp_bias=on,positions=learned" },
  { "gpt_neox", "norm=layernorm,norm_bias=on,activation=gelu,gated=off,qkv_bias=on,proj_bias=on,"
                "mlp_bias=on,rope_fraction=0.25,parallel=on" },
  { "bloom", "tied=on,norm=layernorm,norm_bias=on,activation=gelu_tanh,gated=off,qkv_bias=on,proj_bias=on,"
             "mlp_bias=on,positions=alibi,embed_norm=on" },
  { "falcon", "tied=on,norm=layernorm,norm_bias=on,activation=gelu,gated=off,parallel=on,shared_norm=on" },
  { "mpt", "tied=on,norm=layernorm,activation=gelu,gated=off,positions=alibi" },
  { "phi3", "" },
  { "mixtral", "rope_theta=1000000,experts=8,topk=2" },
  { "qwen2_moe", "qkv_bias=on,norm_eps=1e-06,experts=60,topk=4,expert_ffn=1408,shared_ffn=5632,shared_gate=on,"
                 "pre_softmax=on" },
  { "qwen3_moe", "qk_norm=on,norm_eps=1e-06,experts=128,topk=8,expert_ffn=768" },
  { "deepseek_v2", "norm_eps=1e-06,experts=64,topk=6,expert_ffn=1407,shared_ffn=2814,pre_softmax=on,"
                   "q_lora=1536,kv_lora=512,nope_dim=128,rope_dim=64,v_dim=128" },
  { "deepseek_v3", "norm_eps=1e-06,experts=256,topk=8,expert_ffn=2048,shared_ffn=2048,dense_layers=3,"
                   "router_bias=on,router_score=sigmoid,router_groups=8,router_group_topk=4,router_scale=2.5,"
                   "q_lora=1536,kv_lora=512,nope_dim=128,rope_dim=64,v_dim=128" },
  { "kimi_k2", "norm_eps=1e-06,experts=384,topk=8,expert_ffn=2048,shared_ffn=2048,dense_layers=1,"
               "router_bias=on,router_score=sigmoid,router_scale=2.827,"
               "q_lora=1536,kv_lora=512,nope_dim=128,rope_dim=64,v_dim=128,rope_theta=50000" },
  { "glm4_moe", "head_dim=128,rope_fraction=0.5,experts=128,topk=8,expert_ffn=1408,shared_ffn=1408,dense_layers=1,"
                "router_bias=on,router_score=sigmoid" },
  { "llama4_text", "head_dim=128,rope_theta=500000,qk_l2_norm=rope,window=8192,full_every=4,window_chunks=on,"
                   "nope_every=4,experts=16,topk=1,expert_ffn=8192,shared_ffn=8192,router_score=sigmoid,"
                   "scores_on_input=on" },
  { "gpt_oss", "head_dim=64,rope_theta=150000,activation=quick_gelu,glu_limit=7,glu_offset=1,qkv_bias=on,"
               "proj_bias=on,mlp_bias=on,window=128,window_every=2,experts=128,topk=4,expert_bias=on,sinks=on" },
  { "seed_oss", "qkv_bias=on,norm_eps=1e-06,head_dim=128" },
  { "smollm3", "tied=on,norm_eps=1e-06,rope_theta=2000000,nope_every=4" },
  { "ernie4_5", "tied=on,head_dim=128,rope_theta=500000" },
  { "glm4", "head_dim=128,post_norms=on,qkv_bias=on,rope_fraction=0.5,norm_eps=1.5625e-07" },
  { "arcee", "activation=relu2,gated=off" },
  { "starcoder2", "tied=on,norm=layernorm,norm_bias=on,activation=gelu_tanh,gated=off,qkv_bias=on,proj_bias=on,"
                  "mlp_bias=on" },
  { "nemotron", "norm=layernorm,norm_1p=on,norm_bias=on,activation=relu2,gated=off,rope_fraction=0.5" },
  { "dots1", "qk_norm=on,norm_eps=1e-06,experts=128,topk=6,expert_ffn=1408,router_bias=on,router_score=sigmoid" },
  { "glm4_moe_lite", "experts=64,topk=4,expert_ffn=1536,shared_ffn=1536,dense_layers=1,router_bias=on,"
                     "router_score=sigmoid,router_scale=1.8,q_lora=768,kv_lora=512,nope_dim=192,rope_dim=64,"
                     "v_dim=256" },
  { "olmoe", "qk_norm=full,experts=64,topk=8,pre_softmax=on" },
  { "minimax_m2", "qk_norm=full,norm_eps=1e-06,head_dim=128,rope_theta=5000000,rope_fraction=0.5,experts=256,topk=8,"
                  "router_bias=on,router_score=sigmoid" },
  { "qwen3_next", "norm_1p=on,qk_norm=on,norm_eps=1e-06,head_dim=256,rope_fraction=0.25," DELTA
                  ",experts=512,topk=10,expert_ffn=512,shared_ffn=512,shared_gate=on" },
  { "qwen3_5_text", "norm_1p=on,qk_norm=on,norm_eps=1e-06,head_dim=256,rope_fraction=0.25," DELTA },
  { "qwen3_5_moe_text", "norm_1p=on,qk_norm=on,norm_eps=1e-06,head_dim=256,rope_fraction=0.25," DELTA
                        ",experts=256,topk=8,expert_ffn=512,shared_ffn=512,shared_gate=on" },
#undef DELTA
  { "nemotron_h", "activation=relu2,gated=off,positions=none,head_dim=128,ssm_heads=128,ssm_head_dim=64,ssm_groups=8,"
                  "ssm_state=128,ssm_conv=4" },
};
/* clang-format on */

#define N_KEYS G_N_ELEMENTS (table)
#define SEEN_FAMILY N_KEYS
#define SEEN_NAME (N_KEYS + 1)
G_STATIC_ASSERT (N_KEYS + 2 <= 128);

static gint64 *
int_at (const PlanModel *self, guint key)
{
  return &G_STRUCT_MEMBER (gint64, self, table[key].offset);
}

static double *
real_at (const PlanModel *self, guint key)
{
  return &G_STRUCT_MEMBER (double, self, table[key].offset);
}

static PlanRopeFactors *
list_at (const PlanModel *self, guint key)
{
  return &G_STRUCT_MEMBER (PlanRopeFactors, self, table[key].offset);
}

static PlanPattern *
pattern_at (const PlanModel *self, guint key)
{
  return &G_STRUCT_MEMBER (PlanPattern, self, table[key].offset);
}

/* The value of a flag or a word; enums without negative values are unsigned here. */
static guint *
choice_at (const PlanModel *self, guint key)
{
  return &G_STRUCT_MEMBER (guint, self, table[key].offset);
}

static gboolean G_GNUC_PRINTF (2, 3) invalid (GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID, message);
  return FALSE;
}

const PlanModelKey *
plan_model_keys (guint *out_n)
{
  static PlanModelKey keys[N_KEYS];
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      for (guint i = 0; i < N_KEYS; i++)
        keys[i] = table[i].key;
      g_once_init_leave (&ready, 1);
    }
  *out_n = N_KEYS;
  return keys;
}

const char *const *
plan_model_families (void)
{
  static const char *names[G_N_ELEMENTS (families) + 1];
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      for (guint i = 0; i < G_N_ELEMENTS (families); i++)
        names[i] = families[i].name;
      g_once_init_leave (&ready, 1);
    }
  return names;
}

/* The index of a key; N_KEYS with an error for any other word. */
static guint
find_key (const char *key, GError **error)
{
  const char *names[N_KEYS + 3];
  for (guint i = 0; i < N_KEYS; i++)
    {
      names[i] = table[i].key.name;
      if (g_str_equal (key, names[i]))
        return i;
    }
  names[N_KEYS] = "family";
  names[N_KEYS + 1] = "name";
  names[N_KEYS + 2] = NULL;
  g_autofree char *shown = plan_text_quote (key);
  g_autofree char *hint = plan_text_suggest (key, names);
  invalid (error, "%s is not a dimension of a model: %s", shown, hint);
  return N_KEYS;
}

static gboolean
set_choice (PlanModel *self, guint key, const char *value, GError **error)
{
  for (guint i = 0; table[key].words[i]; i++)
    if (g_str_equal (value, table[key].words[i]))
      {
        *choice_at (self, key) = i;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (value);
  if (table[key].key.kind == PLAN_MODEL_KEY_FLAG)
    return invalid (error, "%s: %s must be on or off", table[key].key.name, shown);
  g_autofree char *hint = plan_text_suggest (value, table[key].words);
  return invalid (error, "%s: %s is not one of its values: %s", table[key].key.name, shown, hint);
}

static gboolean
set_factors (PlanModel *self, guint key, const char *value, GError **error)
{
  const char *const name = table[key].key.name;
  g_auto (GStrv) items = g_strsplit (value, ":", -1);
  PlanRopeFactors *list = list_at (self, key);
  if (g_strv_length (items) > PLAN_ROPE_MAX_PAIRS)
    return invalid (error, "%s: more than %d factors", name, PLAN_ROPE_MAX_PAIRS);
  for (list->n = 0; *value && items[list->n]; list->n++)
    if (!plan_units_parse_real (items[list->n], name, 1e-6, 1e6, &list->at[list->n], error))
      return FALSE;
  return TRUE;
}

static gboolean
set_pattern (PlanModel *self, guint key, const char *value, GError **error)
{
  if (strlen (value) > PLAN_MAX_PATTERN)
    return invalid (error, "%s: more than %d letters", table[key].key.name, PLAN_MAX_PATTERN);
  *pattern_at (self, key) = (PlanPattern){ "" };
  memcpy (pattern_at (self, key)->of, value, strlen (value));
  return TRUE;
}

static gboolean
set_value (PlanModel *self, guint key, const char *value, GError **error)
{
  const char *const name = table[key].key.name;
  switch (table[key].key.kind)
    {
    case PLAN_MODEL_KEY_INT:
      return plan_units_parse_int (value, name, (gint64)table[key].min, (gint64)table[key].max,
                                   int_at (self, key), error);
    case PLAN_MODEL_KEY_REAL:
      return plan_units_parse_real (value, name, table[key].min, table[key].max,
                                    real_at (self, key), error);
    case PLAN_MODEL_KEY_FLAG:
    case PLAN_MODEL_KEY_WORD:
      return set_choice (self, key, value, error);
    case PLAN_MODEL_KEY_LIST:
      return set_factors (self, key, value, error);
    case PLAN_MODEL_KEY_PATTERN:
      return set_pattern (self, key, value, error);
    }
  g_return_val_if_reached (FALSE);
}

gboolean
plan_model_set (PlanModel *self, PlanModelSeen *seen, const char *key, const char *value,
                GError **error)
{
  const gboolean is_family = g_str_equal (key, "family"), is_name = g_str_equal (key, "name");
  const guint at = is_family || is_name ? 0 : find_key (key, error);
  if (at == N_KEYS)
    return FALSE;
  const gsize number = is_family ? SEEN_FAMILY : is_name ? SEEN_NAME : at;
  const guint64 bit = G_GUINT64_CONSTANT (1) << number % 64;
  if (seen->bits[number / 64] & bit)
    return invalid (error, "%s: given twice", key);
  seen->bits[number / 64] |= bit;
  if (!is_family && !is_name)
    return set_value (self, at, value, error);
  char **const word = is_name ? &self->name : &self->family;
  g_free (*word);
  *word = g_strdup (value);
  return TRUE;
}

/* Sets every "key=value" of a list. */
static gboolean
set_list (PlanModel *self, const char *list, GError **error)
{
  g_auto (GStrv) pairs = g_strsplit (list, ",", -1);
  PlanModelSeen seen = { { 0 } };
  for (guint i = 0; pairs[i]; i++)
    {
      char *const value = strchr (pairs[i], '=');
      if (!value)
        {
          g_autofree char *shown = plan_text_quote (pairs[i]);
          return invalid (error, "%s is not of the form dimension=value", shown);
        }
      *value = '\0';
      if (!plan_model_set (self, &seen, pairs[i], value + 1, error))
        return FALSE;
    }
  return TRUE;
}

/* Families of transformers that people train and that have a part which is not modelled. */
static const struct
{
  const char *families, *why;
} unplanned[] = {
  { "qwen4_exp kimi_linear minimax bailing_hybrid glm5_next olmo_hybrid",
    "has layers of linear attention" },
  { "mamba mamba2 falcon_mamba falcon_h1 jamba bamba zamba zamba2 granitemoehybrid "
    "recurrent_gemma lfm2 lfm2_moe rwkv xlstm",
    "has layers of state spaces or convolutions" },
  { "deepseek_v32 deepseek_v4 glm_moe_dsa mistral_large4 hy_v4",
    "chooses by an indexer which tokens are attended to" },
  { "olmo2 olmo3 exaone4", "has norms behind attention and MLP alone" },
  { "flex_olmo", "has norms behind attention and MLP alone" },
  { "granite granitemoe cohere cohere2 minicpm3", "scales its branches or its logits" },
  { "gemma3n gemma4 gemma4_text", "feeds embeddings of their own into its layers" },
  { "longcat_flash", "has two attentions in a layer, and experts that compute nothing" },
  { "qwen2_vl qwen2_5_vl qwen2_5_omni qwen3_vl qwen3_vl_moe qwen3_omni_moe internvl glm4v "
    "glm4v_moe kimi_vl llava llava_next llava_onevision paligemma idefics3 smolvlm pixtral mllama "
    "phi4_multimodal",
    "sees images, or hears; a config.json of its text model alone may be planned" },
  { "t5 bart mt5 umt5 whisper bert roberta modernbert", "is not a decoder alone" },
};

/* What a family has that is not modelled; NULL if that is not known. */
static const char *
find_why_unplanned (const char *family)
{
  for (guint i = 0; i < G_N_ELEMENTS (unplanned); i++)
    {
      g_auto (GStrv) names = g_strsplit (unplanned[i].families, " ", -1);
      if (g_strv_contains ((const char *const *)names, family))
        return unplanned[i].why;
    }
  return NULL;
}

PlanModel *
plan_model_new_family (const char *family, const char *name, GError **error)
{
  guint at = 0;
  while (at < G_N_ELEMENTS (families) && !g_str_equal (families[at].name, family))
    at++;
  if (at == G_N_ELEMENTS (families))
    {
      g_autofree char *shown = plan_text_quote (family);
      const char *const why = find_why_unplanned (family);
      if (why)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                       "%s is not planned by this version: it %s", shown, why);
          return NULL;
        }
      g_autofree char *hint = plan_text_suggest (family, plan_model_families ());
      g_autofree char *all = g_strjoinv (", ", (char **)plan_model_families ());
      const gboolean is_close = !g_str_has_prefix (hint, "known are ");
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "%s is not a family this version knows: %s%sknown are %s", shown,
                   is_close ? hint : "", is_close ? " " : "", all);
      return NULL;
    }
  PlanModel *self = g_new0 (PlanModel, 1);
  self->name = g_strdup (name ? name : DEFAULT_NAME);
  self->family = g_strdup (family);
  self->norm_eps = 1e-5;
  self->rope = (PlanRope){ .theta = 10000, .factor = 1, .mscale = 1 };
  self->rope_fraction = 1;
  self->gated = TRUE;
  self->window_every = self->moe_every = 1;
  self->router_scale = 1;
  if (*families[at].defaults && !set_list (self, families[at].defaults, NULL))
    g_assert_not_reached (); /* the tests make one of each */
  return self;
}

gboolean
plan_model_check_ranges (const PlanModel *self, GError **error)
{
  for (guint i = 0; i < N_KEYS; i++)
    {
      const PlanModelKeyKind kind = table[i].key.kind;
      const double value = kind == PLAN_MODEL_KEY_INT    ? (double)*int_at (self, i)
                           : kind == PLAN_MODEL_KEY_REAL ? *real_at (self, i)
                           : kind == PLAN_MODEL_KEY_WORD ? *choice_at (self, i)
                                                         : 0;
      if (value >= table[i].min && value <= table[i].max)
        continue;
      g_autofree char *shown = plan_units_format_real (value);
      g_autofree char *least = plan_units_format_real (table[i].min);
      g_autofree char *most = plan_units_format_real (table[i].max);
      return invalid (error, "%s: %s is out of range: it must be from %s to %s", table[i].key.name,
                      shown, least, most);
    }
  return TRUE;
}

gboolean
plan_model_complete (PlanModel *self, GError **error)
{
  if (self->kv_heads == 0)
    self->kv_heads = self->heads;
  if (self->layers == 0)
    self->layers = (gint64)strlen (self->pattern.of);
  if (self->experts > 0 && self->expert_ffn == 0)
    self->expert_ffn = self->ffn;
  if (self->kv_lora > 0 && self->head_dim == 0)
    self->head_dim = self->nope_dim + self->rope_dim;
  plan_rope_complete (&self->rope, self->max_seq);
  for (guint i = 0; i < N_DIMENSIONS; i++)
    if (*int_at (self, i) == 0 && table[i].offset != G_STRUCT_OFFSET (PlanModel, head_dim))
      return invalid (error, "%s: missing", table[i].key.name);
  if (self->head_dim == 0)
    {
      if (self->hidden % self->heads != 0)
        return invalid (error,
                        "head_dim: missing, and heads=%" G_GINT64_FORMAT
                        " does not divide hidden=%" G_GINT64_FORMAT,
                        self->heads, self->hidden);
      self->head_dim = self->hidden / self->heads;
    }
  return plan_model_check (self, error);
}

/* The value of `family=` in a list; the caller frees. */
static char *
family_of (const char *spec)
{
  g_auto (GStrv) pairs = g_strsplit (spec, ",", -1);
  for (guint i = 0; pairs[i]; i++)
    if (g_str_has_prefix (pairs[i], "family="))
      return g_strdup (pairs[i] + strlen ("family="));
  return g_strdup ("llama");
}

PlanModel *
plan_model_parse (const char *spec, GError **error)
{
  g_autofree char *family = family_of (spec);
  g_autoptr (GError) cause = NULL;
  g_autoptr (PlanModel) self = plan_model_new_family (family, NULL, &cause);
  if (!self)
    g_prefix_error (&cause, "family: ");
  else if (set_list (self, spec, &cause) && plan_model_complete (self, &cause))
    return g_steal_pointer (&self);
  g_propagate_prefixed_error (error, g_steal_pointer (&cause), "model: ");
  return NULL;
}

static char *
print_factors (const PlanRopeFactors *list)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < list->n; i++)
    {
      g_autofree char *factor = plan_units_format_real (list->at[i]);
      g_string_append_printf (text, "%s%s", i ? ":" : "", factor);
    }
  return g_string_free (text, FALSE);
}

char *
plan_model_print_key (const PlanModel *self, guint key)
{
  g_return_val_if_fail (key < N_KEYS, NULL);
  switch (table[key].key.kind)
    {
    case PLAN_MODEL_KEY_INT:
      return g_strdup_printf ("%" G_GINT64_FORMAT, *int_at (self, key));
    case PLAN_MODEL_KEY_REAL:
      return plan_units_format_real (*real_at (self, key));
    case PLAN_MODEL_KEY_FLAG:
      return g_strdup (flags[*choice_at (self, key) != 0]);
    case PLAN_MODEL_KEY_WORD:
      return g_strdup (table[key].words[*choice_at (self, key)]);
    case PLAN_MODEL_KEY_LIST:
      return print_factors (list_at (self, key));
    case PLAN_MODEL_KEY_PATTERN:
      return g_strdup (pattern_at (self, key)->of);
    }
  g_return_val_if_reached (NULL);
}

static gboolean
is_equal (const PlanModel *a, const PlanModel *b, guint key)
{
  switch (table[key].key.kind)
    {
    case PLAN_MODEL_KEY_INT:
      return *int_at (a, key) == *int_at (b, key);
    case PLAN_MODEL_KEY_REAL:
      return *real_at (a, key) == *real_at (b, key);
    case PLAN_MODEL_KEY_FLAG:
      return !*choice_at (a, key) == !*choice_at (b, key);
    case PLAN_MODEL_KEY_WORD:
      return *choice_at (a, key) == *choice_at (b, key);
    case PLAN_MODEL_KEY_LIST:
      return list_at (a, key)->n == list_at (b, key)->n
             && memcmp (list_at (a, key)->at, list_at (b, key)->at,
                        list_at (a, key)->n * sizeof *list_at (a, key)->at)
                    == 0;
    case PLAN_MODEL_KEY_PATTERN:
      return g_str_equal (pattern_at (a, key)->of, pattern_at (b, key)->of);
    }
  g_return_val_if_reached (FALSE);
}

gboolean
plan_model_has_name (const PlanModel *self)
{
  return !g_str_equal (self->name, DEFAULT_NAME);
}

char *
plan_model_print (const PlanModel *self)
{
  g_autoptr (PlanModel) initial = plan_model_new_family (self->family, NULL, NULL);
  GString *text = g_string_new ("family=");
  g_string_append (text, self->family);
  for (guint i = 0; i < N_KEYS; i++)
    {
      if (i == N_DIMENSIONS && plan_model_has_name (self))
        g_string_append_printf (text, ",name=%s", self->name);
      if (i >= N_DIMENSIONS && is_equal (self, initial, i))
        continue;
      g_autofree char *value = plan_model_print_key (self, i);
      g_string_append_printf (text, ",%s=%s", table[i].key.name, value);
    }
  return g_string_free (text, FALSE);
}

gboolean
plan_model_key_matters (const PlanModel *self, guint key)
{
  g_autoptr (PlanModel) plain = plan_model_new_family ("llama", NULL, NULL);
  const gsize offset = table[key].offset;
  const gboolean is_rope = self->positions == PLAN_POSITIONS_ROPE;
  if (offset == G_STRUCT_OFFSET (PlanModel, rope.theta))
    return is_rope;
  if (offset == G_STRUCT_OFFSET (PlanModel, rope.scaling)
      || offset == G_STRUCT_OFFSET (PlanModel, rope_fraction))
    return is_rope && !is_equal (self, plain, key);
  if (offset == G_STRUCT_OFFSET (PlanModel, router_score))
    return self->experts > 0;
  if (offset == G_STRUCT_OFFSET (PlanModel, qk_norm))
    return self->qk_norm != PLAN_QK_NORM_OFF;
  if (offset == G_STRUCT_OFFSET (PlanModel, qk_l2_norm))
    return self->qk_l2_norm != PLAN_QK_L2_OFF;
  if (offset == G_STRUCT_OFFSET (PlanModel, full_every)) /* to a first layer without a window */
    return self->window > 0 && self->full_every > 0 && self->full_every <= self->layers;
  if (offset == G_STRUCT_OFFSET (PlanModel, nope_every)) /* to a first layer without positions */
    return self->nope_every > 0 && self->nope_every <= self->layers;
  if (offset == G_STRUCT_OFFSET (PlanModel, window_every)) /* to a second windowed layer */
    return self->window > 0 && self->window_from + self->window_every < self->layers
           && !is_equal (self, plain, key);
  return key < N_DIMENSIONS || table[key].key.kind == PLAN_MODEL_KEY_WORD
         || offset == G_STRUCT_OFFSET (PlanModel, norm_eps)
         || offset == G_STRUCT_OFFSET (PlanModel, gated)
         || offset == G_STRUCT_OFFSET (PlanModel, tied_embeddings) || !is_equal (self, plain, key);
}

gboolean
plan_model_is_llama_shaped (const PlanModel *self, gint64 seq)
{
  static const gsize free_keys[]
      = { G_STRUCT_OFFSET (PlanModel, norm_eps), G_STRUCT_OFFSET (PlanModel, rope.theta),
          G_STRUCT_OFFSET (PlanModel, tied_embeddings) };
  static const gsize window_keys[]
      = { G_STRUCT_OFFSET (PlanModel, window), G_STRUCT_OFFSET (PlanModel, window_from),
          G_STRUCT_OFFSET (PlanModel, window_every) };
  g_autoptr (PlanModel) llama = plan_model_new_family ("llama", NULL, NULL);
  const gboolean has_window = self->window > 0 && self->window < seq;
  for (guint i = N_DIMENSIONS; i < N_KEYS; i++)
    {
      gboolean is_free = FALSE;
      for (guint j = 0; j < G_N_ELEMENTS (free_keys); j++)
        is_free = is_free || table[i].offset == free_keys[j]
                  || (!has_window && table[i].offset == window_keys[j]);
      if (!is_free && !is_equal (self, llama, i))
        return FALSE;
    }
  return TRUE;
}
