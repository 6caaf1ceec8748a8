/* PlanModel: a transformer, described by its dimensions and properties.
 *
 * Read from a preset, a Hugging Face config.json (or its folder) or a list of dimensions, and never
 * changed. Parameters are counted as published; a stack pads the vocabulary. */
#pragma once
#include "planner/model/cut.h"
#include "planner/model/delta.h"
#include "planner/model/rope.h"
#include "planner/model/ssm.h"
#include "planner/model/tensor.h"
G_BEGIN_DECLS

typedef enum
{
  PLAN_ACTIVATION_SILU,
  PLAN_ACTIVATION_GELU,
  PLAN_ACTIVATION_GELU_TANH,
  PLAN_ACTIVATION_RELU,
  PLAN_ACTIVATION_RELU2,     /* the square of relu */
  PLAN_ACTIVATION_QUICK_GELU /* x times the sigmoid of 1.702 x */
} PlanActivation;

typedef enum
{
  PLAN_POSITIONS_ROPE,
  PLAN_POSITIONS_ALIBI,
  PLAN_POSITIONS_LEARNED, /* a table of max_seq rows */
  PLAN_POSITIONS_NONE
} PlanPositions;

typedef enum
{
  PLAN_ROUTER_SOFTMAX,
  PLAN_ROUTER_SIGMOID,
  PLAN_ROUTER_SQRTSOFTPLUS
} PlanRouterScore;

/* `fsdplan show --model-keys` explains each field. */
typedef struct
{
  char *name;
  char *family; /* has given the defaults; code should look at the properties instead */
  gint64 layers, hidden, ffn, heads, kv_heads, head_dim, vocab, max_seq;
  double norm_eps, rope_fraction, rope_local;
  PlanRope rope;
  PlanNorm norm;
  gboolean tied_embeddings, norm_bias, norm_1p, post_norms;
  PlanActivation activation;
  gboolean gated, qkv_bias, proj_bias, mlp_bias;
  PlanPositions positions;
  gboolean parallel, shared_norm, embed_scale, embed_norm, window_chunks;
  gint64 window, window_from, window_every, full_every, nope_every;
  PlanQkNorm qk_norm;
  PlanQkL2 qk_l2_norm;
  double attn_scalar, attn_softcap, logit_softcap, router_scale, glu_limit, glu_offset;
  gint64 experts, topk, expert_ffn, expert_hidden, shared_ffn, dense_layers, moe_every;
  gboolean shared_gate, router_bias, pre_softmax, expert_bias, sinks, scores_on_input, attn_gate;
  PlanRouterScore router_score;
  gint64 router_groups, router_group_topk, mtp;      /* 0: no groups; prediction modules */
  gint64 q_lora, kv_lora, nope_dim, rope_dim, v_dim; /* latent attention where kv_lora > 0 */
  PlanDelta delta;
  PlanPattern pattern;
  PlanSsm ssm;
  PlanModelCut cut;
} PlanModel;

/* A key of the text form. */
typedef enum
{
  PLAN_MODEL_KEY_INT,
  PLAN_MODEL_KEY_REAL,
  PLAN_MODEL_KEY_FLAG,
  PLAN_MODEL_KEY_WORD,
  PLAN_MODEL_KEY_LIST,
  PLAN_MODEL_KEY_PATTERN
} PlanModelKeyKind;

typedef struct
{
  const char *name, *values, *meaning;
  PlanModelKeyKind kind;
} PlanModelKey;

/* A Hugging Face config.json, or the folder that holds one. */
PlanModel *plan_model_new_from_config (const char *path, GError **error);

/* The text of a config.json; `origin` names it in errors and, as a path, the model. */
PlanModel *plan_model_parse_config (const char *text, gsize length, const char *origin,
                                    GError **error);

/* A model from the text of --model: a preset's name, possibly followed by changes
 * ("deepseek-v3,mtp=0"), a path, or "layers=4,hidden=64,...". */
PlanModel *plan_model_new (const char *spec, GError **error);
void plan_model_free (PlanModel *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanModel, plan_model_free)

/* Checks every invariant (heads divide, nothing is zero, sizes fit 64 bits). */
gboolean plan_model_check (const PlanModel *self, GError **error);

/* Canonical text, "family=llama,layers=32,...", which plan_model_new reads back. */
char *plan_model_print (const PlanModel *self);
gboolean plan_model_has_name (const PlanModel *self); /* that nothing was changed of since */

const PlanModelKey *plan_model_keys (guint *out_n); /* by the index that these take: */
char *plan_model_print_key (const PlanModel *self, guint key);

/* Whether the key says more than the model's kind implies. */
gboolean plan_model_key_matters (const PlanModel *self, guint key);

/* Whether at that sequence length the model computes what a llama does: no property differs. */
gboolean plan_model_is_llama_shaped (const PlanModel *self, gint64 seq);

/* Whether tokens attend to those before them, all or within a window, by scores as they are,
 * through heads of one size for queries, keys and values. cuDNN's workspace does not depend on the
 * window. */
gboolean plan_model_attends_plainly (const PlanModel *self);

/* The tensor of that role with the vocabulary padded to `vocab` rows. */
PlanTensor plan_model_tensor (const PlanModel *self, PlanTensorRole role, gint64 vocab);
guint64 plan_model_numel (const PlanTensor *tensor); /* elements of all copies */

/* The tensors of a layer in the order of tensor-list.h; those outside the layers; those of a
 * multi-token-prediction module. There are at most PLAN_N_TENSORS; returns how many. */
guint plan_model_layer_tensors (const PlanModel *self, gint64 layer, PlanTensor *out_tensors);
guint plan_model_outer_tensors (const PlanModel *self, gint64 vocab, PlanTensor *out_tensors);
guint plan_model_mtp_tensors (const PlanModel *self, PlanTensor *out_tensors);
gint64 plan_model_n_tensors (const PlanModel *self); /* of all layers and around them */
gboolean plan_model_is_moe_layer (const PlanModel *self, gint64 layer);
gboolean plan_model_is_delta_layer (const PlanModel *self, gint64 layer);
char plan_model_letter (const PlanModel *self, gint64 layer); /* 0: layers have no pattern */
gint64 plan_model_moe_layers (const PlanModel *self);
gint64 plan_model_expert_width (const PlanModel *self); /* of what experts read and make */
gint64 plan_model_turned (const PlanModel *self);       /* elements of a head that rope turns */

/* The number of parameters as published, without prediction modules, which are counted apart.
 * `out_parts` (may be NULL) has them by PlanModelPart. */
guint64 plan_model_parameters (const PlanModel *self);
guint64 plan_model_count (const PlanModel *self, guint64 *out_parts);
guint64 plan_model_mtp_parameters (const PlanModel *self);
guint64 plan_model_active_parameters (const PlanModel *self); /* with `topk` routed experts alone */

/* FLOPs of both passes per token, by Megatron-LM's formula: causal attention, within sequences or
 * documents of `attended` tokens, counts half, and recompute does not count. */
double plan_model_flops_per_token (const PlanModel *self, gint64 attended, gint64 vocab);

const char *const *plan_model_families (void); /* names, in a fixed order */

G_END_DECLS
