/* Shared by the files of the model module: making a model step by step, and reading JSON. */
#pragma once
#include "planner/model/model.h"
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* Which keys of the text form were given so far, a bit each. */
typedef struct
{
  guint64 bits[2];
} PlanModelSeen;

/* A model with the defaults of a family and no dimensions. */
PlanModel *plan_model_new_family (const char *family, const char *name, GError **error);

/* Sets one key from text; refuses unknown and repeated ones. */
gboolean plan_model_set (PlanModel *self, PlanModelSeen *seen, const char *key, const char *value,
                         GError **error);

/* Fills in everything that follows from what was given, then checks the model. */
gboolean plan_model_complete (PlanModel *self, GError **error);

/* Every value within the bounds of its key. */
gboolean plan_model_check_ranges (const PlanModel *self, GError **error);

/* Elements of all tensors, of prediction modules too; as a double, since 64 bits might not hold
 * them. */
double plan_model_elements (const PlanModel *self);

/* Parses "layers=4,hidden=64,...". */
PlanModel *plan_model_parse (const char *spec, GError **error);

/* A JSON object, and which of its keys were looked for. These strings are not copied and must
 * stay. */
typedef struct
{
  JsonObject *object;
  GHashTable *read;
} PlanModelJson;

PlanModelJson plan_model_json_begin (JsonObject *object);
void plan_model_json_clear (PlanModelJson *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanModelJson, plan_model_json_clear)

/* Refuses keys that nobody looked for, unless they are known not to change what the model
 * computes. */
gboolean plan_model_json_check_rest (const PlanModelJson *self, GError **error);

/* The names that a family gives its dimensions in config.json. */
typedef struct
{
  const char *name; /* also the model_type */
  const char *layers, *hidden, *ffn, *heads, *max_seq, *norm_eps, *activation;
  gint64 kv_heads;         /* where the file does not say; 0: as many as heads */
  double default_norm_eps; /* 0: the family's own */
  gint64 max_seq_default;  /* 0: the file must have it */
  gboolean (*read_rest) (PlanModel *self, PlanModelJson *object, GError **error);
} PlanModelFamily;

/* Readers of single families, in planner/model/model-config-gpt.c. */
gboolean plan_model_read_gpt_neox (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_falcon (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_bloom (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_mpt (PlanModel *self, PlanModelJson *object, GError **error);

/* In planner/model/model-config-experts.c, model-config-llama4.c and model-config-pattern.c. */
gboolean plan_model_read_mixtral (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_qwen2_moe (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_qwen3_moe (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_deepseek (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_glm4_moe (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_glm4_moe_lite (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_dots1 (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_olmoe (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_minimax_m2 (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_gpt_oss (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_qwen3_next (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_qwen3_5 (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_qwen3_5_moe (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_nemotron_h (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_llama4 (PlanModel *self, PlanModelJson *object, GError **error);

/* Parts of readers: routed experts as DeepSeek's and GLM's files describe them, with so many shared
 * ones where the file does not say; the one flag that stands for all biases of attention; which
 * layers have a window, by their types; a window, which a family does not have here; which layers
 * have no rotary positions. */
gboolean plan_model_read_routed_experts (PlanModel *self, PlanModelJson *object, gint64 shared,
                                         GError **error);
gboolean plan_model_read_attention_bias (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_read_layer_types (PlanModel *self, PlanModelJson *object, GError **error);
gboolean plan_model_refuse_window (PlanModelJson *object, GError **error);
gboolean plan_model_read_nope_layers (PlanModel *self, PlanModelJson *object, GError **error);

const PlanModelFamily *plan_model_family_find (const char *name);
const char *plan_model_activation_name (PlanActivation activation);

/* Append a member to the text of an object in the making. */
void plan_model_put_int (GPtrArray *members, const char *key, gint64 value);
void plan_model_put_real (GPtrArray *members, const char *key, double value);
void plan_model_put_text (GPtrArray *members, const char *key, const char *json);
void plan_model_put_word (GPtrArray *members, const char *key, const char *word);

/* Writes the rotary positions, so that every version of transformers reads it. `theta` is the
 * family's name for the base. */
void plan_model_put_rope (GPtrArray *members, const PlanModel *self, const char *theta);

/* Reads the rotary positions. `theta` and `fraction` (may be NULL) are the family's names for the
 * base and for the fraction of a head that is rotated. */
gboolean plan_model_read_rope (PlanModel *self, PlanModelJson *object, const char *theta,
                               const char *fraction, GError **error);

/* Read members by key and type; errors name the key. An absent key leaves the output unchanged, and
 * so does null unless said otherwise. */
JsonNode *plan_model_json_find (PlanModelJson *object, const char *key);
gboolean plan_model_json_has (PlanModelJson *object, const char *key);
gboolean plan_model_json_object (PlanModelJson *object, const char *key, JsonObject **out_object,
                                 GError **error);
gboolean plan_model_json_refuse (const char *key, JsonNode *node, const char *rule, GError **error);
gboolean plan_model_json_int (PlanModelJson *object, const char *key, gint64 min, gint64 *out_value,
                              GError **error);
gboolean plan_model_json_real (PlanModelJson *object, const char *key, double *out_value,
                               GError **error);
gboolean plan_model_json_flag (PlanModelJson *object, const char *key, gboolean *out_value,
                               GError **error);
gboolean plan_model_json_word (PlanModelJson *object, const char *key, const char **out_value,
                               GError **error);

/* As above, but absence is an error (size), or null means 0 (int_or_null). */
gboolean plan_model_json_size (PlanModelJson *object, const char *key, gint64 *out_value,
                               GError **error);
gboolean plan_model_json_int_or_null (PlanModelJson *object, const char *key, gint64 *out_value,
                                      GError **error);

/* Sets UNSUPPORTED, of what a config.json says and no model here has; FALSE. */
gboolean plan_config_refuse (GError **error, const char *format, ...) G_GNUC_PRINTF (2, 3);

G_END_DECLS
