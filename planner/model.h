/* PlanModel: a transformer by its dimensions.
 *
 * Read from a shipped preset, a Hugging Face config.json (or its folder), or a
 * list of dimensions; never changed afterwards. Parameters are the published
 * ones: padding the vocabulary is a stack's business. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *name;
  char *family; /* "llama" */
  gint64 layers;
  gint64 hidden;
  gint64 ffn;
  gint64 heads;
  gint64 kv_heads;
  gint64 head_dim;
  gint64 vocab;
  gint64 max_seq;
  double norm_eps;
  double rope_theta;
  gboolean tied_embeddings;
} PlanModel;

/* Where a parameter tensor sits in the network, in the order the network uses them. */
typedef enum
{
  PLAN_TENSOR_EMBEDDING,
  PLAN_TENSOR_ATTENTION_NORM,
  PLAN_TENSOR_QKV,
  PLAN_TENSOR_PROJ,
  PLAN_TENSOR_MLP_NORM,
  PLAN_TENSOR_GATE_UP,
  PLAN_TENSOR_DOWN,
  PLAN_TENSOR_FINAL_NORM,
  PLAN_TENSOR_OUTPUT,
  PLAN_N_TENSORS
} PlanTensorRole;

typedef struct
{
  PlanTensorRole role;
  const char *name;
  guint64 rows; /* dim 0; of a vector: its length */
  guint64 cols; /* 1 for a vector */
} PlanTensor;

/* The shipped model of that name. */
PlanModel *plan_model_new_preset (const char *name, GError **error);

/* A Hugging Face config.json, or the folder that holds one. */
PlanModel *plan_model_new_from_config (const char *path, GError **error);

/* The text of a config.json; `origin` names it in errors and, as a path, the model. */
PlanModel *plan_model_parse_config (const char *text, gsize length, const char *origin,
                                    GError **error);

/* A preset name, a path, or "layers=4,hidden=64,..."; what --model takes. */
PlanModel *plan_model_new (const char *spec, GError **error);

void plan_model_free (PlanModel *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanModel, plan_model_free)

/* Every invariant (heads divide, nothing zero, sizes fit 64 bits). */
gboolean plan_model_check (const PlanModel *self, GError **error);

/* Canonical text, "family=llama,layers=32,...", which plan_model_new reads back. */
char *plan_model_print (const PlanModel *self);

/* Tensor of that role with the vocabulary padded to `vocab` rows; rows 0 if the model has none. */
PlanTensor plan_model_tensor (const PlanModel *self, PlanTensorRole role, gint64 vocab);

guint64 plan_model_parameters (const PlanModel *self);

/* FLOPs of forward plus backward for one token at that sequence length: Megatron-LM's
 * formula with causal attention counted half, recompute not counted. */
double plan_model_flops_per_token (const PlanModel *self, gint64 seq, gint64 vocab);

/* NULL-terminated names of the shipped models, in a fixed order. */
const char *const *plan_model_presets (void);

G_END_DECLS
